"""How often the server's series were sampled, and what is left of samples that are gone."""
