"""Where the volumes of pods can be used, for every decision that moves a pod."""
