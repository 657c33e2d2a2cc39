//! Tokens from files, sample order, and the state that is a number of consumed samples.
