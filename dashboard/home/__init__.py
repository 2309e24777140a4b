"""The Home page: what to do first, the cluster's next day, what was saved, and links to everything else."""
