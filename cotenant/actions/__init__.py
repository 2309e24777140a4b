"""What people have done to the cluster on their word: the same functions behind the CLI, the pages and the API."""
