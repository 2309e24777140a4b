"""The nodes on which pods' volumes can be used, for every decision that moves a pod."""
