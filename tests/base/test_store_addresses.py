"""Addresses of a store that cannot be one: a clear error in our words, without what is secret in them."""

from __future__ import annotations

import fsspec
import pytest

from cotenant.base.errors import CotenantError, UsageError
from cotenant.base.store.files import Folder

SECRET = "hunter2-secret"
RESTS = (
    f"a:{SECRET}@/",
    f"a:{SECRET}@host/x",
    f":{SECRET}@",
    f"a:{SECRET}/w@host/x",
    f"{SECRET}@[",
    f"h/?sig={SECRET}#[",
)
SCHEMES = sorted(
    {*fsspec.available_protocols(), "nonsense", "s3", "s3a", "gs", "az", "S3"} - {"file", "local", "memory"}
)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rest", RESTS)
def test_no_address_is_unexpected_and_no_error_shows_its_secret(scheme: str, rest: str) -> None:
    try:
        Folder(f"{scheme}://{rest}")
    except CotenantError as error:
        assert SECRET not in f"{error} {error.message} {error.fix}" and error.fix
    else:
        # what opens without a word holds no password: a person alone before the @, or a query
        assert f":{SECRET}" not in rest


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "data"])
def test_an_address_with_a_password_is_refused_whatever_its_scheme(scheme: str) -> None:
    with pytest.raises(UsageError, match="contains a password or token") as raised:
        Folder(f"{scheme}://a:{SECRET}@host/x")
    assert scheme in raised.value.message


@pytest.mark.parametrize("url", ["s3://", "s3://[", "s3:///x", "nonsense://x", "github://", "github://a:b@/"])
def test_an_address_without_a_place_says_so(url: str) -> None:
    with pytest.raises(UsageError):
        Folder(url)


@pytest.mark.parametrize("url", ["file:///tmp/a:b@c/x", "memory://a", "s3://bucket/a:b@c", "/tmp/x"])
def test_a_good_address_stays_one(url: str) -> None:
    assert Folder(url).url == url
