"""What each layer knows: the probes of Peters et al. 2018, section 5.3, for any model that elmokit opens."""
