//! What people and schedulers ask of a job: files in control/, signals, a tombstone in the journal.

use super::{Entry_, Shell};
use crate::store::journal::Entry;
use crate::supervise::classify::Request;
use crate::supervise::core::Event;
use std::time::SystemTime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that the supervisor obeys; SIGHUP does nothing.
pub(super) struct Signals {
    pub limit: Signal,
    pub terminate: Signal,
    pub interrupt: Signal,
    pub hangup: Signal,
}

impl Signals {
    pub(super) fn open() -> std::io::Result<Signals> {
        Ok(Signals {
            limit: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

impl Shell {
    /// New files in control/. Those older than the slot were for an earlier job.
    pub(super) fn requests(&mut self) -> Vec<Event> {
        let opened = std::fs::metadata(self.site.run.plan(self.options.slot))
            .and_then(|m| m.modified())
            .unwrap_or(SystemTime::UNIX_EPOCH);
        let listing = std::fs::read_dir(self.site.run.control());
        let mut events = Vec::new();
        for entry in listing.into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let event = match name.rsplit_once('-').map(|(_, what)| what) {
                Some("stop") => Event::Request(Request::Stop),
                Some("save") => Event::Save,
                Some("cancel") => Event::Request(Request::Cancel),
                _ => continue,
            };
            let recent = entry
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|made| made >= opened);
            // A save asked for before the ranks run is for them.
            let now = event != Event::Save || self.core.is_running();
            if recent && now && self.obeyed.insert(name) {
                events.push(event);
            }
        }
        events
    }

    /// A signal to end: somebody cancels the job, or its time is over.
    pub(super) async fn terminated(&mut self, by: SignalKind) -> anyhow::Result<()> {
        for event in self.requests() {
            self.handle(event).await?;
        }
        let tombstone = closed(&self.entries()?).is_some();
        let request = match tombstone {
            true => Request::Cancel,
            false => Request::Terminate(by.as_raw_value()),
        };
        self.handle(Event::Request(request)).await
    }
}

/// Why the run is not to be worked on; absent when it is open.
pub(super) fn closed(entries: &[Entry]) -> Option<String> {
    let mut words = None;
    for entry in entries {
        match &entry.event {
            Entry_::Tombstone { reason } => {
                words = Some(format!("the run was cancelled: {reason}"));
            }
            Entry_::Finished { words: end, .. } => {
                words = Some(format!("the run has ended: {end}"));
            }
            Entry_::Reopened { .. } => words = None,
            _ => {}
        }
    }
    words
}
