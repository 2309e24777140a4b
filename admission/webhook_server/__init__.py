"""The webhook process: its server, certificates, registration and mirrors of the cluster."""
