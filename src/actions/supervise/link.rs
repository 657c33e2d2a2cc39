//! The successor of a job that saved before its time limit: opened, submitted, and this slot closed for ever.

use super::{Entry_, Shell, say};
use crate::actions::{script, submit};
use crate::store::claim;
use crate::store::identity::Process;
use crate::store::journal::Entry;
use crate::supervise::chain::{Follow, Link, Rules, follow};
use crate::supervise::submission::{Known, Outcome as Answer};
use crate::supervise::verdict::Outcome;
use anyhow::Context;

impl Shell {
    /// Carries the chain on; what is to be added to the words of the end, where the run ends here.
    pub(super) fn link(&mut self, outcome: Outcome) -> Result<(), String> {
        let Some(limits) = self.site.plan.chain.clone() else {
            return Err(String::new());
        };
        let rules = Rules {
            jobs: limits.jobs,
            node_hours: limits.node_hours,
            until: limits.until,
        };
        let link = match self.seen(outcome) {
            Ok(link) => link,
            Err(error) => return Err(format!("; the chain stops: {error:#}")),
        };
        match follow(&rules, &link) {
            Follow::Nothing => Err(String::new()),
            Follow::Stop(words) => Err(format!("; {words}")),
            Follow::Submit => self
                .successor()
                .map_err(|error| format!("; its successor was not submitted: {error:#}")),
        }
    }

    fn seen(&self, outcome: Outcome) -> anyhow::Result<Link> {
        let entries = self.entries()?;
        let job = &self.site.plan.job;
        let (mut saved, mut from) = (None, None);
        for entry in entries.iter().filter(|e| e.epoch == self.site.epoch) {
            match &entry.event {
                Entry_::Attempt { parent, .. } => {
                    from.get_or_insert(parent.map_or(0, |at| at.step));
                }
                Entry_::Saved { step, .. } => saved = saved.max(Some(*step)),
                _ => {}
            }
        }
        let nodes = job.nodes as f64;
        Ok(Link {
            outcome,
            at_limit: self.core.at_limit(),
            jobs: u32::try_from(self.site.run.numbers("jobs").len()).unwrap_or(u32::MAX),
            used: nodes * hours(&entries),
            job: nodes * job.walltime_seconds.unwrap_or_default() as f64 / 3600.0,
            saved,
            from: from.unwrap_or_default(),
            today: chrono::Utc::now().format("%Y-%m-%d").to_string(),
        })
    }

    fn successor(&mut self) -> anyhow::Result<()> {
        let run = self.site.run.clone();
        if let Some(words) = super::closed(&self.entries()?) {
            anyhow::bail!(words);
        }
        let slot = self.options.slot + 1;
        if !submit::open(&run, slot)? {
            anyhow::bail!("somebody else goes on with the run this moment");
        }
        let own = Process::own().context("cannot read /proc/self/stat")?;
        // From here on no requeue of this job works on the run.
        claim::close(&run, self.options.slot, &own, self.site.epoch)?;
        self.journal.append(Entry_::Link { slot })?;
        let haul = submit::own_binary(&run)?;
        submit::prepare(&run, slot, &self.site.plan, &haul, &script::job)?;
        let known = Known::Nothing;
        match submit::drive(&run, slot, &self.site.plan, &haul, &mut self.journal, known)? {
            Answer::Submitted(job) => {
                say(&format!("the run goes on in slot {slot}, job {job}"));
                Ok(())
            }
            Answer::Refused(reason) => anyhow::bail!(reason),
            Answer::Unclear(reason) => {
                anyhow::bail!("the scheduler's answer is not clear: {reason}")
            }
        }
    }
}

/// Hours that supervisors of the run have reigned: from claim to the last word.
fn hours(entries: &[Entry]) -> f64 {
    let time = |entry: &Entry| chrono::DateTime::parse_from_rfc3339(&entry.time).ok();
    let mut seconds = 0.0;
    for claimed in entries {
        if !matches!(claimed.event, Entry_::Claimed { .. }) {
            continue;
        }
        let last = entries.iter().rfind(|entry| entry.epoch == claimed.epoch);
        if let (Some(from), Some(to)) = (time(claimed), last.and_then(time)) {
            seconds += (to - from).num_milliseconds().max(0) as f64 / 1000.0;
        }
    }
    seconds / 3600.0
}
