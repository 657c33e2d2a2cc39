//! Whether a job that saved before its time limit has a successor: a pure function of the journal and of the plan's limits.

use super::verdict::Outcome;

/// What stops a chain; absent limits do not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Jobs of the run.
    pub jobs: Option<u32>,
    /// Of all jobs together.
    pub node_hours: Option<f64>,
    /// `YYYY-MM-DD`, UTC: the last day on which a job is submitted.
    pub until: Option<String>,
}

/// What is known when a job has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub outcome: Outcome,
    /// The time limit was the reason to stop.
    pub at_limit: bool,
    /// Slots so far.
    pub jobs: u32,
    /// Node-hours that the jobs so far have used, and those of one whole job.
    pub used: f64,
    pub job: f64,
    /// Newest step saved by this job, and the step it began from.
    pub saved: Option<u64>,
    pub from: u64,
    /// `YYYY-MM-DD`, UTC.
    pub today: String,
}

/// What follows a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Follow {
    /// The end is the end.
    Nothing,
    Submit,
    /// The chain stops here, for the reason in words.
    Stop(String),
}

/// Decides.
pub fn follow(rules: &Rules, link: &Link) -> Follow {
    if link.outcome != Outcome::Stopped || !link.at_limit {
        return Follow::Nothing;
    }
    let stop = |words: String| Follow::Stop(format!("the chain stops: {words}"));
    match link.saved {
        Some(saved) if saved > link.from => {}
        _ => {
            return stop(format!(
                "this job saved nothing beyond step {}, and its successor would not either; a longer `job.walltime` or a shorter `checkpoint.every` lets it go on",
                link.from
            ));
        }
    }
    if let Some(jobs) = rules.jobs.filter(|jobs| link.jobs >= *jobs) {
        return stop(format!("{jobs} jobs are its limit (`limits.jobs`)"));
    }
    if let Some(hours) = rules
        .node_hours
        .filter(|hours| link.used + link.job > *hours)
    {
        return stop(format!(
            "{:.1} node-hours are used, and another job of {:.1} would be over its limit of {hours} (`limits.node_hours`)",
            link.used, link.job
        ));
    }
    // Days of this form sort as they follow one another.
    if let Some(until) = rules.until.as_ref().filter(|until| link.today > **until) {
        return stop(format!("{until} was its last day (`limits.until`)"));
    }
    Follow::Submit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link {
            outcome: Outcome::Stopped,
            at_limit: true,
            jobs: 2,
            used: 8.0,
            job: 4.0,
            saved: Some(20),
            from: 10,
            today: "2027-02-15".into(),
        }
    }

    fn stops(rules: &Rules, link: &Link, words: &str) {
        match follow(rules, link) {
            Follow::Stop(said) => assert!(said.contains(words), "{said}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_has_a_successor_until_a_limit_or_without_progress() {
        let none = Rules::default();
        assert_eq!(follow(&none, &link()), Follow::Submit);
        for outcome in [Outcome::Finished, Outcome::Failed, Outcome::Cancelled] {
            assert_eq!(follow(&none, &Link { outcome, ..link() }), Follow::Nothing);
        }
        let asked = Link {
            at_limit: false,
            ..link()
        };
        assert_eq!(follow(&none, &asked), Follow::Nothing);
        for saved in [None, Some(10)] {
            stops(&none, &Link { saved, ..link() }, "beyond step 10");
        }
        let rules = |jobs, node_hours, until: &str| Rules {
            jobs,
            node_hours,
            until: Some(until.into()),
        };
        assert_eq!(
            follow(&rules(Some(3), Some(12.0), "2027-02-15"), &link()),
            Follow::Submit
        );
        stops(&rules(Some(2), None, "2028-01-01"), &link(), "2 jobs");
        stops(
            &rules(None, Some(11.9), "2028-01-01"),
            &link(),
            "node-hours",
        );
        stops(&rules(None, None, "2027-02-14"), &link(), "last day");
    }
}
