//! Signals as events: blocked in every thread, taken by one.

use super::RankError;
use nix::sys::signal::{SigSet, Signal};

/// Blocks `signals` in this thread and those it starts, and hands each one to `receive` from a thread of its own.
/// Call it before any other thread is started.
pub fn receive(
    signals: &[Signal],
    mut receive: impl FnMut(Signal) + Send + 'static,
) -> Result<(), RankError> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block()
        .map_err(RankError::system("block signals"))?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            while let Ok(signal) = set.wait() {
                receive(signal);
            }
        })
        .map(|_| ())
        .map_err(|source| RankError::System {
            what: "start a thread",
            source,
        })
}
