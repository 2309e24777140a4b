"""What a namespace's LimitRanges and ResourceQuotas mean for pods on reclaimed capacity. Pure."""
