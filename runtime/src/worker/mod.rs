//! `haul worker`: the only way to a device.
