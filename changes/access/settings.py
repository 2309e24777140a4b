"""Settings of access: how people are identified, and what they may do."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from cotenant.base.people import Role
from cotenant.base.settings.base import Section, setting

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class AccessMode(StrEnum):
    """The way the dashboard identifies people."""

    NONE = "none"
    """Nobody is identified; only on the loopback interface."""
    PROXY = "proxy"
    """A proxy in front identifies people by headers."""
    OIDC = "oidc"
    """People log in here with an OpenID Connect provider."""


class Unlisted(StrEnum):
    """The treatment of a person whom no access rule matches."""

    VIEWER = "viewer"
    REFUSED = "refused"


class RoleRule(Section, frozen=True):
    """A rule that gives a group or a user a role, in some namespaces or everywhere."""

    role: Role
    group: str = ""
    user: str = ""
    namespaces: list[str] = msgspec.field(default_factory=list)
    """The namespaces in which the role applies; empty: all."""

    def __post_init__(self) -> None:
        """Raise ValueError unless the rule names either a group or a user."""
        if bool(self.group) == bool(self.user):
            raise ValueError(f"a rule of role {self.role.value!r} must name either a group or a user")


class ProxySettings(Section, frozen=True):
    """A proxy in front of the dashboard that identifies people by headers; other peers' headers are ignored."""

    trusted: Annotated[
        list[str],
        setting(
            "Addresses (CIDR) of proxies whose headers are trusted, compared with the connection's peer address.",
            when="a proxy logs people in",
        ),
    ] = msgspec.field(default_factory=list)
    user_header: Annotated[
        str, setting("Header with the person's name.", when="your proxy uses another header", min_length=1)
    ] = "X-Forwarded-User"
    groups_header: Annotated[
        str,
        setting(
            "Header with the person's groups, separated by commas; empty: no groups. A repeated header is refused.",
            when="your proxy uses another header",
        ),
    ] = "X-Forwarded-Groups"
    logout_url: Annotated[
        str,
        setting("URL at which the proxy ends its session; empty: no log-out.", when="your proxy can end its session"),
    ] = ""
    cluster_user_prefix: Annotated[
        str,
        setting(
            "Prefix that the cluster's own authentication puts before user names, such as `oidc:`.",
            when="the cluster's own login puts a prefix before names",
        ),
    ] = ""
    cluster_group_prefix: Annotated[
        str, setting("Prefix that the cluster's login puts before groups.", when="the cluster's login prefixes groups")
    ] = ""

    def __post_init__(self) -> None:
        for text in self.trusted:
            ip_network(text)


class OidcSettings(Section, frozen=True):
    """An OpenID Connect provider for logins: authorization code flow with PKCE."""

    issuer: Annotated[
        str,
        setting(
            "Issuer URL, exactly as in the provider's tokens; it must be https, except on the loopback interface.",
            when="people log in at your provider",
        ),
    ] = ""
    client_id: Annotated[
        str,
        setting(
            "Client id at the provider, as the API server expects it in tokens.", when="people log in at your provider"
        ),
    ] = ""
    client_secret_file: Annotated[
        str,
        setting(
            "File of the client's secret; empty for a public client, which PKCE alone protects.",
            when="your provider gave a secret with the client id",
        ),
    ] = ""
    scopes: Annotated[
        list[str],
        setting(
            "OAuth scopes of the login. Add `offline_access` if the provider gives refresh tokens only for this scope.",
            when="your provider gives groups or refresh tokens for other scopes",
        ),
    ] = msgspec.field(default_factory=lambda: ["openid", "email", "profile", "groups"])
    user_claim: Annotated[
        str,
        setting(
            "Claim with the person's name; an email that is not verified is refused.",
            when="the API server takes user names from another claim",
            min_length=1,
        ),
    ] = "email"
    groups_claim: Annotated[
        str,
        setting(
            "Claim with the person's groups; a dot selects a field of an object: `realm_access.roles`.",
            when="your provider has groups in another claim",
        ),
    ] = "groups"
    audiences: Annotated[
        list[str],
        setting(
            "Audiences of bearer tokens that scripts may send, in addition to the client id.",
            when="scripts send tokens of other clients",
        ),
    ] = msgspec.field(default_factory=list)
    ca_file: Annotated[
        str,
        setting(
            "CA certificates for the provider's certificate; empty: the system's.",
            when="the provider's certificate is signed by an authority of your own",
        ),
    ] = ""

    def __post_init__(self) -> None:
        """Raise ValueError for an issuer that others could impersonate, such as one without TLS."""
        url = urlsplit(self.issuer)
        if self.issuer and url.scheme != "https" and url.hostname not in LOOPBACK_NAMES:
            raise ValueError(f"the issuer {self.issuer!r} is not https: set access.oidc.issuer")


class AccessSettings(Section, frozen=True):
    """Settings of the people who may use the dashboard, and of their rights there."""

    read_only: Annotated[
        bool,
        setting(
            "Everybody is a viewer and nothing can be changed, whatever the roles say; `--act` turns this off.",
            when="people may apply changes on the pages",
        ),
    ] = True
    mode: Annotated[
        AccessMode,
        setting(
            "How people are identified: not at all (loopback only), by a proxy's headers, or by a login here.",
            when="people log in, at a proxy or here",
        ),
    ] = AccessMode.NONE
    launch_token: Annotated[
        bool,
        setting(
            "In mode none the printed address holds a token that the first visit needs, so that other users of the "
            "machine have no access; only a read-only dashboard may omit it.",
            when="the machine's other users may have access",
        ),
    ] = True
    anonymous: Annotated[
        Unlisted,
        setting("Role of people without a login, in the modes proxy and oidc.", when="people without a login may read"),
    ] = Unlisted.REFUSED
    unlisted: Annotated[
        Unlisted,
        setting("Role of people who are logged in and match no rule.", when="people without a role may not even read"),
    ] = Unlisted.VIEWER
    roles: Annotated[
        list[RoleRule],
        setting(
            "Rules that give a group or user a role in namespaces, or in all if none is named; all that match apply.",
            when="people get roles",
        ),
    ] = msgspec.field(default_factory=list)
    own_namespaces: Annotated[
        bool,
        setting(
            "People read only the namespaces in which a rule gives them a role; people without a rule are refused.",
            when="teams must not see each other's namespaces",
        ),
    ] = False
    public_url: Annotated[
        str,
        setting(
            "Address at which browsers reach the dashboard, without its base path; empty: the Host header.",
            when="a proxy changes the host name that browsers use",
        ),
    ] = ""
    session_hours: Annotated[
        float,
        setting(
            "A login ends after this time.", when="your policy asks for shorter logins", unit="hours", gt=0, le=168
        ),
    ] = 12.0
    sessions: Annotated[
        str,
        setting(
            "Place where several replicas share encrypted logins: file:///folder of a shared volume, or "
            "s3://bucket/folder; empty: logins are lost when this process ends.",
            when="several replicas serve the dashboard",
        ),
    ] = ""
    session_key_file: Annotated[
        str,
        setting(
            "File of at least 32 random bytes that sign cookies and encrypt shared logins, the same for all replicas; "
            "empty: keys of this process only.",
            when="logins should outlive a restart, or replicas share them",
        ),
    ] = ""
    proxy: Annotated[ProxySettings, setting("The proxy that logs people in.")] = ProxySettings()
    oidc: Annotated[OidcSettings, setting("A login here.")] = OidcSettings()

    def __post_init__(self) -> None:
        """Raise ValueError if the mode lacks a setting that it needs."""
        if self.mode is AccessMode.PROXY and not self.proxy.trusted:
            raise ValueError("mode proxy needs the addresses of trusted proxies: set access.proxy.trusted")
        if self.mode is AccessMode.OIDC and not (self.oidc.issuer and self.oidc.client_id):
            raise ValueError("mode oidc needs access.oidc.issuer and access.oidc.client_id")
        if self.mode is AccessMode.NONE and not (self.read_only or self.launch_token):
            raise ValueError(
                "launch_token is off while read_only is off: every user of the machine could act with your "
                "kubeconfig; leave launch_token on"
            )
        if self.own_namespaces and self.anonymous is Unlisted.VIEWER:
            raise ValueError("own_namespaces needs access.anonymous refused: as viewer, anybody could read everything")
        if self.sessions and not self.session_key_file:
            raise ValueError("access.sessions needs access.session_key_file, which encrypts what is stored there")
        if self.public_url and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise ValueError(f"public_url {self.public_url!r} is not an http or https address")
