//! Machine profiles: what a site is, in data.
