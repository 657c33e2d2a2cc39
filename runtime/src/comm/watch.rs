//! Watches the connections to peers' processes: one that closes is a process that ended.

pub(super) struct Watch;
