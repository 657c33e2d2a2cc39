//! Submission under random orders of events and crashes, against a scheduler that lies, lags and accepts late.

use super::*;

/// splitmix64: one seed, one history.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Accepted, but the scheduler tells nobody yet.
    Hidden,
    Queued,
    Running,
    /// Holds its slot.
    Owner,
    Ended,
}

#[derive(Debug, Clone)]
struct SimJob {
    slot: u32,
    restart: u32,
    phase: Phase,
}

/// An entry of a slot's chain of claims: a job, or nobody (closed).
type Chain = Vec<Option<usize>>;

#[derive(Debug, Default)]
struct World {
    journal: Vec<(u32, Known)>,
    jobs: Vec<SimJob>,
    chains: Vec<Chain>,
    honest: bool,
    submits: usize,
    /// Sabotage: earlier slots are not closed before the next is opened.
    no_fence: bool,
}

/// Somebody who submits or resumes; dies between any two of its actions.
struct Actor {
    slot: Option<(u32, Submission, Action)>,
    over: Option<Opening>,
    alive: bool,
    steps: usize,
}

impl World {
    fn known(&self, slot: u32) -> Known {
        let mut known = Known::Nothing;
        for (s, entry) in &self.journal {
            if *s == slot && (known == Known::Nothing || known == Known::Intent) {
                known = entry.clone();
            }
        }
        known
    }

    fn chain(&mut self, slot: u32) -> &mut Chain {
        let index = slot as usize - 1;
        if self.chains.len() <= index {
            self.chains.resize(index + 1, Vec::new());
        }
        &mut self.chains[index]
    }

    /// As the store does: restart r only behind r - 1 of the same job.
    fn claim(&mut self, job: usize) -> bool {
        let (slot, restart) = (self.jobs[job].slot, self.jobs[job].restart as usize);
        let chain = self.chain(slot);
        let mine = restart == 0 || chain.get(restart - 1) == Some(&Some(job));
        if !mine || chain.len() != restart {
            return false;
        }
        chain.push(Some(job));
        true
    }

    fn submit(&mut self, slot: u32, dice: &mut Dice) -> Event {
        self.submits += 1;
        let accept = |world: &mut World, phase| {
            world.jobs.push(SimJob {
                slot,
                restart: 0,
                phase,
            });
            (world.jobs.len() - 1).to_string()
        };
        match if self.honest { 0 } else { dice.below(6) } {
            0 | 1 => Event::Accepted(accept(self, Phase::Queued)),
            2 => {
                accept(self, Phase::Queued);
                Event::Unclear("timed out".into())
            }
            3 => {
                accept(self, Phase::Hidden);
                Event::Unclear("timed out".into())
            }
            4 => Event::Unclear("connection refused".into()),
            _ => Event::Refused("over the limit".into()),
        }
    }

    fn look_up(&self, slot: u32, dice: &mut Dice) -> Event {
        if !self.honest && dice.one_in(5) {
            return Event::CannotLookUp("timed out".into());
        }
        let lagging = !self.honest && dice.one_in(3);
        let jobs = self.jobs.iter().enumerate();
        Event::Found(
            jobs.filter(|(_, job)| job.slot == slot && job.phase != Phase::Hidden && !lagging)
                .map(|(index, _)| index.to_string())
                .collect(),
        )
    }

    /// What a resumer sees; it may see less than there is, never an end that was none.
    fn see(&mut self, dice: &mut Dice, submitting: &[u32]) -> Vec<Slot> {
        let newest = self.journal.iter().map(|(slot, _)| *slot).max();
        let opened = self.chains.len() as u32;
        (1..=newest.unwrap_or(0).max(opened).max(1))
            .map(|number| {
                let blind = !self.honest && dice.one_in(6);
                let owner = self.chain(number).last().copied();
                let claim = match owner {
                    None => Claimed::Nobody,
                    Some(None) => Claimed::Closed,
                    Some(Some(_)) if blind => Claimed::Unknown,
                    Some(Some(job)) if self.jobs[job].phase == Phase::Owner => Claimed::Alive,
                    Some(Some(_)) => Claimed::Dead,
                };
                let seen: Vec<Phase> = self
                    .jobs
                    .iter()
                    .filter(|job| job.slot == number && job.phase != Phase::Hidden)
                    .map(|job| job.phase)
                    .collect();
                let job = if !self.honest && dice.one_in(6) {
                    Job::Unknown("timed out".into())
                } else if seen
                    .iter()
                    .any(|p| matches!(p, Phase::Running | Phase::Owner))
                {
                    Job::Running
                } else if seen.contains(&Phase::Queued) {
                    Job::Queued
                } else if seen.is_empty() {
                    Job::None
                } else {
                    Job::Ended
                };
                Slot {
                    number,
                    known: self.known(number),
                    submitter_alive: Some(submitting.contains(&number)),
                    claim,
                    job,
                }
            })
            .collect()
    }

    /// One thing happens to a job.
    fn turn(&mut self, job: usize, dice: &mut Dice) {
        let phase = self.jobs[job].phase;
        let next = match phase {
            Phase::Hidden => Phase::Queued,
            Phase::Queued => Phase::Running,
            Phase::Running if self.claim(job) => Phase::Owner,
            Phase::Running => Phase::Ended,
            Phase::Owner | Phase::Ended if dice.one_in(4) && self.owns(job) => {
                // The scheduler requeues it, also after others took it for dead.
                self.jobs[job].restart += 1;
                Phase::Queued
            }
            Phase::Owner | Phase::Ended => Phase::Ended,
        };
        self.jobs[job].phase = next;
    }

    fn owns(&self, job: usize) -> bool {
        let chain = &self.chains[self.jobs[job].slot as usize - 1];
        chain.contains(&Some(job))
    }

    fn owners(&self) -> usize {
        let owners = self.jobs.iter().filter(|job| job.phase == Phase::Owner);
        owners.count()
    }
}

impl Actor {
    fn new() -> Actor {
        Actor {
            slot: None,
            over: None,
            alive: true,
            steps: 0,
        }
    }

    fn busy(&self) -> bool {
        self.alive && self.over.is_none() && !matches!(self.slot, Some((.., Action::Done(_))))
    }

    /// Carries one action out.
    fn turn(&mut self, world: &mut World, dice: &mut Dice, submitting: &[u32]) {
        self.steps += 1;
        let Some((slot, submission, action)) = &mut self.slot else {
            match opening(&world.see(dice, submitting)) {
                Opening::Complete(slot) => self.submit(world, slot),
                Opening::Open { close, slot } => {
                    for number in close {
                        // Somebody may have claimed in between: then look again.
                        let alive = match world.chain(number).last() {
                            Some(Some(job)) => {
                                let job = *job;
                                world.jobs[job].phase == Phase::Owner
                            }
                            _ => false,
                        };
                        if alive {
                            return;
                        }
                        if !world.no_fence {
                            world.chain(number).push(None);
                        }
                    }
                    // The directory of the slot is made exclusively.
                    if world.chains.len() < slot as usize {
                        world.chain(slot);
                        self.submit(world, slot);
                    }
                }
                held => self.over = Some(held),
            }
            return;
        };
        let slot = *slot;
        let event = match action {
            Action::JournalIntent => {
                world.journal.push((slot, Known::Intent));
                Event::Journalled
            }
            Action::Submit => world.submit(slot, dice),
            Action::LookUp => world.look_up(slot, dice),
            Action::Wait(_) => Event::Waited,
            Action::JournalSubmitted(job) => {
                world.journal.push((slot, Known::Submitted(job.clone())));
                Event::Journalled
            }
            Action::JournalRefused(reason) => {
                world.journal.push((slot, Known::Refused(reason.clone())));
                Event::Journalled
            }
            Action::Done(_) => return,
        };
        *action = submission.step(event);
    }

    fn submit(&mut self, world: &World, slot: u32) {
        let (submission, action) = Submission::begin(world.known(slot));
        self.slot = Some((slot, submission, action));
    }
}

/// Runs one history; the error tells what went wrong.
fn history(seed: u64, no_fence: bool) -> Result<(), String> {
    let mut dice = Dice(seed);
    let mut world = World {
        no_fence,
        ..World::default()
    };
    let mut actors = vec![Actor::new()];
    actors[0].submit(&world, 1);
    world.chain(1);
    for _ in 0..20 + dice.below(60) {
        let submitting: Vec<u32> = actors
            .iter()
            .filter(|a| a.busy())
            .filter_map(|a| Some(a.slot.as_ref()?.0))
            .collect();
        match dice.below(4) {
            0 if actors.len() < 6 => actors.push(Actor::new()),
            1 if !world.jobs.is_empty() => {
                let job = dice.below(world.jobs.len());
                world.turn(job, &mut dice);
            }
            _ => {
                let index = dice.below(actors.len());
                if actors[index].busy() {
                    if dice.one_in(12) {
                        actors[index].alive = false;
                    } else {
                        actors[index].turn(&mut world, &mut dice, &submitting);
                    }
                }
            }
        }
        if world.owners() > 1 {
            return Err(format!("two jobs are live: {:?}", world.jobs));
        }
    }
    settle(&mut world, &mut actors, &mut dice)
}

/// The storm is over: everybody tells the truth, and the run must come to an end state.
fn settle(world: &mut World, actors: &mut [Actor], dice: &mut Dice) -> Result<(), String> {
    world.honest = true;
    for actor in actors.iter_mut() {
        while actor.busy() {
            actor.turn(world, dice, &[]);
            if actor.steps > 200 {
                return Err("a submission has no end".into());
            }
        }
    }
    let submits = world.submits;
    let mut last = Actor::new();
    while last.busy() {
        last.turn(world, dice, &[]);
        if last.steps > 200 {
            return Err("the last resume has no end".into());
        }
    }
    if world.submits > submits + TRIES as usize {
        return Err("too many submissions".into());
    }
    for _ in 0..4 {
        for job in 0..world.jobs.len() {
            if matches!(
                world.jobs[job].phase,
                Phase::Hidden | Phase::Queued | Phase::Running
            ) {
                world.turn(job, dice);
            }
        }
        if world.owners() > 1 {
            return Err(format!("two jobs are live: {:?}", world.jobs));
        }
    }
    match (&last.over, &last.slot) {
        (Some(Opening::Held { .. }), _)
        | (None, Some((.., Action::Done(Outcome::Submitted(_))))) => {
            if world.owners() == 1 || world.jobs.iter().any(|j| j.phase == Phase::Ended) {
                Ok(())
            } else {
                Err(format!("nobody owns the run: {:?}", world.jobs))
            }
        }
        // A refusal that the journal of the dead submitter holds is an end too.
        (None, Some((slot, _, Action::Done(Outcome::Refused(_)))))
            if matches!(world.known(*slot), Known::Refused(_)) =>
        {
            Ok(())
        }
        other => Err(format!("no end state: {:?}", other.0)),
    }
}

/// 10,000 histories, or as many as `HAUL_TEST_SEEDS` says.
#[test]
fn no_order_of_events_and_crashes_gives_two_live_jobs_or_no_end() {
    let seeds = std::env::var("HAUL_TEST_SEEDS").map_or(10_000, |text| text.parse().unwrap());
    for seed in 0..seeds {
        if let Err(reason) = history(seed, false) {
            panic!("seed {seed}: {reason}");
        }
    }
}

#[test]
fn without_closing_earlier_slots_two_jobs_would_live() {
    let found = (0..10_000).filter(|seed| {
        history(*seed, true).is_err_and(|reason| reason.starts_with("two jobs are live"))
    });
    assert!(found.count() > 0, "the simulation does not bite");
}

#[test]
fn a_clear_answer_takes_four_steps() {
    let (mut submission, action) = Submission::begin(Known::Nothing);
    assert_eq!(action, Action::JournalIntent);
    assert_eq!(submission.step(Event::Journalled), Action::Submit);
    assert_eq!(
        submission.step(Event::Accepted("7".into())),
        Action::JournalSubmitted("7".into())
    );
    assert_eq!(
        submission.step(Event::Journalled),
        Action::Done(Outcome::Submitted("7".into()))
    );
}

#[test]
fn an_unclear_answer_is_looked_up_and_a_lost_job_is_found() {
    let (mut submission, _) = Submission::begin(Known::Nothing);
    submission.step(Event::Journalled);
    assert_eq!(
        submission.step(Event::Unclear("timed out".into())),
        Action::LookUp
    );
    assert_eq!(submission.step(Event::Found(vec![])), Action::Wait(1));
    assert_eq!(submission.step(Event::Waited), Action::LookUp);
    assert_eq!(
        submission.step(Event::Found(vec!["7".into(), "8".into()])),
        Action::JournalSubmitted("7".into())
    );
}

#[test]
fn a_scheduler_that_cannot_be_asked_is_not_asked_to_submit_again() {
    let (mut submission, mut action) = Submission::begin(Known::Intent);
    let mut submits = 0;
    for _ in 0..20 {
        submits += usize::from(action == Action::Submit);
        action = submission.step(match action {
            Action::Wait(_) => Event::Waited,
            _ => Event::CannotLookUp("down".into()),
        });
    }
    assert_eq!(submits, 0);
    assert_eq!(action, Action::Done(Outcome::Unclear("down".into())));
}

#[test]
fn unknown_is_never_taken_for_ended() {
    let slot = |claim, job, known| Slot {
        number: 1,
        known,
        submitter_alive: Some(false),
        claim,
        job,
    };
    let submitted = || Known::Submitted("7".into());
    let unknown = || Job::Unknown("down".into());
    let held = |slot| matches!(opening(&[slot]), Opening::Held { .. });
    assert!(held(slot(Claimed::Unknown, unknown(), submitted())));
    assert!(held(slot(Claimed::Unknown, Job::Running, submitted())));
    assert!(held(slot(Claimed::Nobody, unknown(), submitted())));
    assert!(held(slot(Claimed::Nobody, Job::None, submitted())));
    assert!(held(slot(Claimed::Alive, Job::Ended, submitted())));
    assert!(!held(slot(Claimed::Dead, unknown(), submitted())));
    assert!(!held(slot(Claimed::Unknown, Job::Ended, submitted())));
    assert_eq!(
        opening(&[slot(Claimed::Nobody, Job::None, Known::Intent)]),
        Opening::Complete(1)
    );
    assert_eq!(
        opening(&[slot(Claimed::Nobody, Job::Ended, submitted())]),
        Opening::Open {
            close: vec![1],
            slot: 2
        }
    );
}
