//! Schedulers: submit, look up, cancel.
