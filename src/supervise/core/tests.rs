//! The core against a simulated world: random orders of events, crashes, duplicates, late and lost messages.

use super::*;
use crate::supervise::verdict::Class;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const WORLD: usize = 3;
const LAUNCHERS: usize = 2;
const NODES: [usize; WORLD] = [0, 0, 1];
const LAST_STEP: u64 = 40;

struct World {
    random: Random,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: Vec<Event>,
    alive: [bool; LAUNCHERS],
    attempt: u32,
    launches: u32,
    /// Attempts that count as no failure.
    free: u32,
    checkpoints: Vec<Point>,
    unreadable: Vec<Point>,
    ever_saved: bool,
    base: u64,
    failures: u32,
    saved_now: bool,
    finished: Option<Outcome>,
}

impl World {
    fn at(&mut self, delay: u64, event: Event) {
        let twin = self.random.one_in(8).then(|| self.random.below(90_000));
        // Of requests there is one; everything else may come twice, the second time late.
        for delay in [Some(delay), twin.map(|t| delay + t)].into_iter().flatten() {
            self.queue
                .push(Reverse((self.now + delay, self.events.len() as u64)));
            self.events.push(event.clone());
        }
    }

    fn launch(&mut self, attempt: u32, parent: Option<Point>) {
        assert!(!self.alive.iter().any(|a| *a), "two attempts alive");
        assert!(attempt > self.attempt, "an attempt number twice");
        assert!(
            parent.is_some() || !self.ever_saved,
            "a start from nothing though checkpoints were written"
        );
        self.attempt = attempt;
        self.launches += 1;
        self.alive = [true; LAUNCHERS];
        self.base = parent.map_or(0, |p| p.step);
        self.saved_now = false;
        if self.random.one_in(12) {
            self.at(
                1,
                Event::LaunchFailed {
                    attempt,
                    launcher: 1,
                    words: "no".into(),
                },
            );
            self.die(1, 2);
        }
        let hang = self.random.one_in(10);
        for rank in 0..WORLD {
            if !(hang && rank == 1) {
                let delay = self.random.below(200);
                self.at(delay, Event::Hello { attempt, rank });
            }
        }
        if self.random.one_in(6) {
            let (launcher, delay) = (self.random.below(2) as usize, self.random.below(3000));
            self.die(launcher, delay);
        }
    }

    /// A launcher ends at its own or somebody's will, with its shims.
    fn die(&mut self, launcher: usize, delay: u64) {
        let attempt = self.attempt;
        let status = if self.random.one_in(2) {
            Status::Signal(9)
        } else {
            Status::Code(0)
        };
        self.queue
            .push(Reverse((self.now + delay, self.events.len() as u64)));
        self.events.push(Event::LauncherGone {
            attempt,
            launcher,
            status,
        });
        for rank in (0..WORLD).filter(|r| NODES[*r] == launcher) {
            if self.random.one_in(2) {
                self.at(delay, Event::Lost { attempt, rank });
            }
        }
    }

    /// The ranks run: they step, save, and each comes to some end.
    fn run(&mut self) {
        let attempt = self.attempt;
        let common = match self.random.below(8) {
            0 => 75,
            1 => 0,
            2 => 93,
            3 => 76,
            _ => 1,
        };
        let steps = self.random.below(20);
        let ends = self.base + steps >= LAST_STEP;
        let save = self
            .random
            .one_in(2)
            .then(|| self.base + self.random.below(steps + 1));
        for rank in 0..WORLD {
            for s in 1..=steps {
                let event = Event::Step {
                    attempt,
                    rank,
                    step: self.base + s,
                };
                self.at(s * 50, event);
            }
            let delay = steps * 50 + self.random.below(300);
            let event = match self.random.below(10) {
                _ if ends => Event::Exit {
                    attempt,
                    rank,
                    status: Status::Code(0),
                    asked: false,
                },
                0 => Event::Lost { attempt, rank },
                1 => Event::ShimGone {
                    attempt,
                    rank,
                    status: Status::Signal(9),
                },
                2 => Event::Exit {
                    attempt,
                    rank,
                    status: Status::Signal(11),
                    asked: false,
                },
                // It falls silent.
                3 => continue,
                _ => Event::Exit {
                    attempt,
                    rank,
                    status: Status::Code(common),
                    asked: false,
                },
            };
            self.at(delay, event);
        }
        if let Some(step) = save.filter(|s| *s > self.base) {
            let point = Point { attempt, step };
            self.checkpoints.push(point);
            self.ever_saved = true;
            self.saved_now = true;
            self.at(0, Event::Saved { attempt, step });
        }
        if self.random.one_in(2) {
            // Launchers whose ranks have ended leave.
            for launcher in 0..LAUNCHERS {
                let delay = 1500 + self.random.below(2000);
                self.die(launcher, delay);
            }
        }
    }

    fn choose(&mut self) -> Event {
        let attempt = self.attempt + 1 + self.random.below(2) as u32;
        let best = self
            .checkpoints
            .iter()
            .rev()
            .find(|p| !self.unreadable.contains(p))
            .copied();
        let choice = match best {
            Some(point) => Choice::From(point),
            None if self.ever_saved && self.random.one_in(2) => {
                Choice::AllUnreadable("none".into())
            }
            // Sometimes a lie: nothing is found though checkpoints were written.
            None => Choice::Fresh,
        };
        Event::Chosen { attempt, choice }
    }

    fn carry_out(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Choose => return Some(self.choose()),
            Action::Launch { attempt, parent } => self.launch(attempt, parent),
            Action::TellAll { attempt, tell } => {
                assert_eq!(attempt, self.attempt);
                match tell {
                    Tell::Welcome => self.run(),
                    Tell::Abort { .. } if !self.random.one_in(4) => {
                        for launcher in 0..LAUNCHERS {
                            let delay = self.random.below(1500);
                            self.die(launcher, delay);
                        }
                    }
                    Tell::Stop if self.random.one_in(2) => {
                        for rank in 0..WORLD {
                            let event = Event::Exit {
                                attempt,
                                rank,
                                status: Status::Code(75),
                                asked: false,
                            };
                            let delay = self.random.below(500);
                            self.at(delay, event);
                        }
                    }
                    _ => {}
                }
            }
            Action::KillLaunchers { attempt } => {
                assert_eq!(attempt, self.attempt);
                for launcher in 0..LAUNCHERS {
                    self.die(launcher, 5);
                }
            }
            Action::MarkUnreadable { at, .. } => {
                assert!(!self.unreadable.contains(&at));
                self.unreadable.push(at);
            }
            Action::Judge { attempt, verdict } => {
                assert_eq!(attempt, self.attempt);
                assert!(!verdict.words.is_empty());
                match verdict.class {
                    Class::Failed => self.failures += 1,
                    Class::Again if !self.saved_now => self.failures += 1,
                    _ => self.free += 1,
                }
            }
            Action::Finish { outcome, .. } => self.finished = Some(outcome),
            Action::TellRank { .. } | Action::Leave { .. } | Action::Pause { .. } => {}
        }
        None
    }
}

fn simulate(seed: u64) -> World {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let failures = random.below(4) as u32;
    let mut core = Core::new(Setup {
        nodes: NODES.iter().map(|n| format!("local{n}")).collect(),
        launchers: (0..LAUNCHERS).map(|n| format!("local{n}")).collect(),
        failures,
        timing: Timing::default(),
    });
    let mut world = World {
        random,
        now: 0,
        queue: BinaryHeap::new(),
        events: Vec::new(),
        alive: [false; LAUNCHERS],
        attempt: 0,
        launches: 0,
        free: 0,
        checkpoints: Vec::new(),
        unreadable: Vec::new(),
        ever_saved: false,
        base: 0,
        failures: 0,
        saved_now: false,
        finished: None,
    };
    world.at(0, Event::Claimed(Claimed::Won));
    if world.random.one_in(5) {
        let request = [
            Request::Stop,
            Request::Limit,
            Request::Cancel,
            Request::Terminate(15),
        ][world.random.below(4) as usize];
        let delay = world.random.below(8000);
        world.at(delay, Event::Request(request));
    }
    let mut turns = 0;
    while !core.is_over() {
        turns += 1;
        assert!(turns < 100_000, "seed {seed}: no end");
        let next = world.queue.peek().map(|Reverse((at, _))| *at);
        let event = match next {
            Some(at) if at <= world.now + 500 => {
                world.now = at;
                let Some(Reverse((_, index))) = world.queue.pop() else {
                    unreachable!()
                };
                world.events[index as usize].clone()
            }
            _ => {
                world.now += 500;
                Event::Tick
            }
        };
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if let Event::LauncherGone {
                attempt, launcher, ..
            } = event
                && attempt == world.attempt
            {
                world.alive[launcher] = false;
            }
            for action in core.step(Duration::from_millis(world.now), event) {
                events.extend(world.carry_out(action));
            }
        }
    }
    let restarts = world.launches.saturating_sub(1);
    assert!(
        restarts <= failures + world.free,
        "seed {seed}: {restarts} restarts, {failures} failures allowed, {} attempts free",
        world.free
    );
    assert!(world.failures <= failures + 1, "seed {seed}");
    assert!(world.finished.is_some(), "seed {seed}");
    assert!(
        !world.alive.iter().any(|a| *a),
        "seed {seed}: finished with an attempt alive"
    );
    world
}

/// 10,000 histories, or as many as `HAUL_TEST_SEEDS` says.
#[test]
fn ten_thousand_random_histories_end_within_the_rules() {
    let seeds = std::env::var("HAUL_TEST_SEEDS").map_or(10_000, |text| text.parse().unwrap());
    let mut outcomes = std::collections::BTreeMap::<String, u32>::new();
    let mut launches = 0;
    for seed in 0..seeds {
        let world = simulate(seed);
        launches += world.launches;
        *outcomes.entry(format!("{:?}", world.finished)).or_default() += 1;
    }
    // The world is rich enough to reach every outcome, and restarts.
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
    assert!(
        u64::from(launches) > seeds * 3 / 2,
        "{launches} {outcomes:?}"
    );
}

fn core(failures: u32) -> Core {
    let mut core = Core::new(Setup {
        nodes: vec!["local0".into(), "local0".into()],
        launchers: vec!["local0".into()],
        failures,
        timing: Timing::default(),
    });
    core.step(Time::ZERO, Event::Claimed(Claimed::Won));
    core.step(
        Time::ZERO,
        Event::Chosen {
            attempt: 1,
            choice: Choice::Fresh,
        },
    );
    for rank in 0..2 {
        core.step(Time::ZERO, Event::Hello { attempt: 1, rank });
    }
    assert!(core.is_running());
    core
}

#[test]
fn a_killed_rank_ends_the_others_at_once_and_the_next_attempt_waits_for_the_launcher() {
    let mut core = core(1);
    let now = Duration::from_secs(1);
    core.step(
        now,
        Event::Step {
            attempt: 1,
            rank: 1,
            step: 7,
        },
    );
    let exit = Event::Exit {
        attempt: 1,
        rank: 1,
        status: Status::Signal(9),
        asked: false,
    };
    let actions = core.step(now, exit);
    assert!(matches!(
        actions[..],
        [Action::TellAll {
            tell: Tell::Abort { .. },
            ..
        }]
    ));
    let gone = Event::LauncherGone {
        attempt: 1,
        launcher: 0,
        status: Status::Code(0),
    };
    let actions = core.step(now, gone);
    let [Action::Judge { verdict, .. }, Action::Choose] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(
        verdict.words,
        "rank 1 on local0 was killed by SIGKILL at step 7"
    );
}

#[test]
fn a_program_that_ignores_term_is_killed_and_one_that_answers_it_with_0_is_not_done() {
    let mut core = core(1);
    let now = Duration::from_secs(1);
    let actions = core.step(now, Event::Request(Request::Cancel));
    assert_eq!(
        actions,
        [Action::TellAll {
            attempt: 1,
            tell: Tell::Abort {
                grace: Duration::from_secs(5)
            }
        }]
    );
    for rank in 0..2 {
        let status = Status::Code(0);
        core.step(
            now,
            Event::Exit {
                attempt: 1,
                rank,
                status,
                asked: true,
            },
        );
    }
    assert!(core.step(Duration::from_secs(7), Event::Tick).is_empty());
    assert_eq!(
        core.step(Duration::from_secs(8), Event::Tick),
        [Action::KillLaunchers { attempt: 1 }]
    );
    let actions = core.step(
        Duration::from_secs(9),
        Event::LauncherGone {
            attempt: 1,
            launcher: 0,
            status: Status::Signal(9),
        },
    );
    assert!(matches!(
        actions.last(),
        Some(Action::Finish {
            outcome: Outcome::Cancelled,
            ..
        })
    ));
}

#[test]
fn the_launchers_word_may_overtake_the_shims_own() {
    let mut core = core(0);
    let now = Duration::from_secs(1);
    for rank in 0..2 {
        let status = Status::Code(75);
        let gone = Event::ShimGone {
            attempt: 1,
            rank,
            status,
        };
        assert!(core.step(now, gone).is_empty());
        let exit = Event::Exit {
            attempt: 1,
            rank,
            status,
            asked: false,
        };
        assert!(core.step(now, exit).is_empty());
        assert!(core.step(now, Event::Lost { attempt: 1, rank }).is_empty());
    }
    core.step(
        now,
        Event::Saved {
            attempt: 1,
            step: 5,
        },
    );
    let gone = Event::LauncherGone {
        attempt: 1,
        launcher: 0,
        status: Status::Code(0),
    };
    let actions = core.step(now, gone);
    assert!(matches!(&actions[0], Action::Judge { verdict, .. } if verdict.class == Class::Again));

    // A shim that has said nothing more is the cause.
    let mut core = self::core(0);
    let status = Status::Signal(9);
    assert!(
        core.step(
            now,
            Event::ShimGone {
                attempt: 1,
                rank: 1,
                status
            }
        )
        .is_empty()
    );
    let actions = core.step(
        now,
        Event::Lost {
            attempt: 1,
            rank: 1,
        },
    );
    assert!(matches!(
        actions[0],
        Action::TellAll {
            tell: Tell::Abort { .. },
            ..
        }
    ));
    let gone = Event::LauncherGone {
        attempt: 1,
        launcher: 0,
        status: Status::Code(0),
    };
    let Some(Action::Judge { verdict, .. }) = core.step(now, gone).into_iter().next() else {
        panic!("no verdict");
    };
    assert_eq!(
        verdict.words,
        "the shim of rank 1 on local0 was killed by SIGKILL"
    );
}

#[test]
fn the_second_failure_of_a_kind_is_followed_by_a_pause_that_a_request_ends() {
    let fail = |core: &mut Core, attempt| {
        let (launcher, status) = (0, Status::Signal(9));
        let gone = Event::LauncherGone {
            attempt,
            launcher,
            status,
        };
        core.step(Time::ZERO, gone)
    };
    let paused = || {
        let mut core = core(9);
        assert_eq!(fail(&mut core, 1).last(), Some(&Action::Choose));
        let choice = Choice::Fresh;
        core.step(Time::ZERO, Event::Chosen { attempt: 2, choice });
        let time = Timing::default().pause;
        assert_eq!(fail(&mut core, 2).last(), Some(&Action::Pause { time }));
        (core, time)
    };
    let (mut core, time) = paused();
    assert!(core.step(time / 2, Event::Tick).is_empty());
    assert_eq!(core.step(time, Event::Tick), [Action::Choose]);
    let (mut core, time) = paused();
    core.step(time / 2, Event::Request(Request::Cancel));
    assert!(core.is_over());
}
