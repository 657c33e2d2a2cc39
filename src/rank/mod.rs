//! The rank shim: bind, spawn, watch, report.
