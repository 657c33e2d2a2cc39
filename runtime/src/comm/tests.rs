//! The collectives with ranks as threads, over memory and over connections: the same tests.
#![allow(unsafe_code)]

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Local,
    Tcp,
    /// Nodes of two ranks; the last may have one.
    Nodes,
}

const KINDS: [Kind; 3] = [Kind::Local, Kind::Tcp, Kind::Nodes];

fn group(kind: Kind, size: usize, bytes: usize) -> Vec<Box<dyn Comm>> {
    group_with(kind, size, bytes, Options::default())
}

fn group_with(kind: Kind, size: usize, bytes: usize, options: Options) -> Vec<Box<dyn Comm>> {
    match kind {
        Kind::Local => {
            let members = local::group_with(size, bytes, options).unwrap();
            members.into_iter().map(|m| Box::new(m) as _).collect()
        }
        Kind::Tcp | Kind::Nodes => {
            let each = if matches!(kind, Kind::Tcp) { 1 } else { 2 };
            let members = tcp::tests::group_at("127.0.0.1", each, size, bytes, options);
            members.into_iter().map(|m| Box::new(m) as _).collect()
        }
    }
}

/// Values whose sums depend on the order of addition.
fn value(rank: usize, i: usize) -> f64 {
    let hash = blake3::hash(&[(rank as u64).to_le_bytes(), (i as u64).to_le_bytes()].concat());
    let bits = u32::from_le_bytes([0, 1, 2, 3].map(|b| hash.as_bytes()[b]));
    (f64::from(bits) - 2e9) * 10f64.powi((i % 7) as i32 - 3)
}

/// Runs `body` on a thread a rank and returns the results in rank order.
fn on_all<R: Send>(
    members: Vec<Box<dyn Comm>>,
    body: impl Fn(&mut dyn Comm) -> R + Sync,
) -> Vec<R> {
    let body = &body;
    thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|mut member| scope.spawn(move || body(&mut *member)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[expect(
    clippy::mut_from_ref,
    reason = "the bytes belong to the rank, not to the handle"
)]
pub(super) fn elements<T>(memory: &Memory) -> &mut [T] {
    // SAFETY: page-aligned memory of the rank itself, touched by its thread only outside of collectives.
    unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().cast(), memory.len() / size_of::<T>()) }
}

const SIZES: [usize; 4] = [0, 1, 7, (64 << 10) + 1];

#[test]
fn all_reduce_is_the_sum_in_rank_order_to_the_bit() {
    let table: Vec<Vec<f64>> = (0..8)
        .map(|rank| (0..SIZES[3] + 3).map(|i| value(rank, i)).collect())
        .collect();
    for (kind, size) in KINDS.into_iter().flat_map(|k| (1..=8).map(move |n| (k, n))) {
        for len in SIZES {
            on_all(group(kind, size, (len + 3) * 8), |member| {
                let memory = member.grads();
                let fill64 = elements::<f64>(&memory);
                fill64.copy_from_slice(&table[member.rank()][..len + 3]);
                member.all_reduce(Real::F64, 2, len).unwrap();
                for i in 0..len + 3 {
                    let mut want = table[member.rank()][i];
                    if (2..2 + len).contains(&i) {
                        want = table[0][i];
                        table[1..size].iter().for_each(|row| want += row[i]);
                    }
                    let have = elements::<f64>(&memory)[i];
                    assert_eq!(
                        have.to_bits(),
                        want.to_bits(),
                        "{kind:?}, {size} ranks, {len}, {i}"
                    );
                }
                member.barrier().unwrap();
                for (to, from) in elements::<f32>(&memory)
                    .iter_mut()
                    .zip(&table[member.rank()])
                {
                    *to = *from as f32;
                }
                member.all_reduce(Real::F32, 1, len).unwrap();
                for i in 0..len {
                    let mut want = table[0][i + 1] as f32;
                    table[1..size]
                        .iter()
                        .for_each(|row| want += row[i + 1] as f32);
                    assert_eq!(elements::<f32>(&memory)[i + 1].to_bits(), want.to_bits());
                }
            });
        }
    }
}

#[test]
fn all_gather_takes_any_length_and_mixes_with_other_operations() {
    for (kind, size) in KINDS.into_iter().flat_map(|k| (1..=8).map(move |n| (k, n))) {
        on_all(group(kind, size, 64), |member| {
            for len in SIZES.into_iter().chain([511, 512, 513, 1024]) {
                let mine: Vec<f64> = (0..len)
                    .map(|i| (i * size + member.rank()) as f64)
                    .collect();
                let mut out = vec![-1.0; size * len];
                member.all_gather(&mine, &mut out).unwrap();
                for (rank, part) in out.chunks(len.max(1)).enumerate() {
                    for (i, have) in part.iter().enumerate() {
                        assert_eq!(*have, (i * size + rank) as f64);
                    }
                }
                if len % 2 == 1 {
                    member.barrier().unwrap();
                    member.all_reduce(Real::F32, 0, len.min(16)).unwrap();
                }
            }
        });
    }
}

#[test]
fn different_operations_are_out_of_step_on_every_rank() {
    for kind in KINDS {
        different_operations(kind);
    }
}

fn different_operations(kind: Kind) {
    let results = on_all(group(kind, 3, 64), |member| {
        member.barrier().unwrap();
        let first = if member.rank() == 2 {
            member.all_reduce(Real::F32, 0, 4)
        } else {
            member.all_reduce(Real::F32, 0, 5)
        };
        (first.unwrap_err(), member.barrier().unwrap_err())
    });
    for (rank, (first, later)) in results.iter().enumerate() {
        let CommError::OutOfStep { rank: other, .. } = first else {
            panic!("{first}");
        };
        // The one that differs meets either of the others first.
        assert!(if rank == 2 { *other < 2 } else { *other == 2 }, "{first}");
        assert_eq!(first, later, "the group stays failed");
    }
    let text = results[0].0.to_string();
    assert!(
        text.contains("0..4, operation 2") && text.contains("0..5"),
        "{text}"
    );
}

#[test]
fn an_abort_reaches_waiting_and_later_ranks_with_its_reason() {
    for kind in KINDS {
        an_abort(kind);
    }
}

fn an_abort(kind: Kind) {
    let reason = "gradient of h.3.mlp.fc.weight is not finite: ∞";
    let results = on_all(group(kind, 4, 64), |member| {
        match member.rank() {
            1 => member.abort(reason),
            // Comes late, when the others have long failed.
            3 => thread::sleep(Duration::from_millis(150)),
            _ => {}
        }
        let error = member.all_reduce(Real::F64, 0, 8).unwrap_err();
        assert_eq!(member.check(), Err(error.clone()));
        error
    });
    for error in results {
        let want = CommError::Aborted {
            rank: 1,
            reason: reason.into(),
        };
        assert_eq!(error, want);
    }
}

#[test]
fn a_rank_that_leaves_or_panics_is_named_by_those_that_wait() {
    for kind in KINDS {
        a_rank_that_leaves(kind);
    }
}

fn a_rank_that_leaves(kind: Kind) {
    let results = on_all(group(kind, 3, 64), |member| {
        member.barrier().unwrap();
        (member.rank() != 1).then(|| member.barrier().unwrap_err())
    });
    for error in results.into_iter().flatten() {
        assert!(
            matches!(
                error,
                CommError::PeerDied {
                    rank: 1,
                    sequence: 2,
                    operation: "barrier"
                }
            ),
            "{error}"
        );
    }
    let mut members = group(kind, 2, 64);
    let doomed = members.pop();
    let bug = thread::spawn(move || {
        let _member = doomed;
        std::panic::resume_unwind(Box::new("bug"));
    });
    let error = members[0].barrier().unwrap_err();
    assert!(bug.join().is_err());
    assert!(
        matches!(&error, CommError::Aborted { rank: 1, reason } if reason.contains("panic")),
        "{error}"
    );
}

#[test]
fn the_rank_that_stands_still_is_named_not_those_that_wait_for_it() {
    for kind in KINDS {
        a_rank_that_stands_still(kind);
    }
}

fn a_rank_that_stands_still(kind: Kind) {
    let options = Options {
        silent: Duration::from_millis(600),
        ..Options::default()
    };
    let told = AtomicUsize::new(0);
    let tell = |error: CommError| {
        told.fetch_add(1, Ordering::Relaxed);
        error
    };
    let results = on_all(group_with(kind, 3, 64, options), |member| {
        match member.rank() {
            // Busy and alive for longer than the deadline.
            0 => {
                for _ in 0..20 {
                    thread::sleep(Duration::from_millis(20));
                    member.tick();
                }
                tell(member.barrier().unwrap_err())
            }
            1 => tell(member.barrier().unwrap_err()),
            _ => {
                while told.load(Ordering::Relaxed) < 2 {
                    thread::sleep(Duration::from_millis(10));
                }
                member.barrier().unwrap_err()
            }
        }
    });
    for error in results {
        assert!(
            matches!(error, CommError::PeerSilent { rank: 2, seconds, .. } if seconds >= 0.6),
            "{error}"
        );
    }
}

#[test]
fn a_long_operation_seen_before_stretches_the_deadline() {
    for kind in KINDS {
        a_long_operation(kind);
    }
}

fn a_long_operation(kind: Kind) {
    let options = Options {
        silent: Duration::from_millis(300),
        ..Options::default()
    };
    on_all(group_with(kind, 2, 64, options), |member| {
        if member.rank() == 1 {
            // 60 ms seen: 1.2 s allowed.
            member.tick();
            thread::sleep(Duration::from_millis(60));
            member.tick();
        }
        member.barrier().unwrap();
        if member.rank() == 1 {
            thread::sleep(Duration::from_millis(700));
        }
        member.barrier().unwrap();
    });
}

#[test]
fn impossible_arguments_are_errors_and_fail_the_group() {
    for kind in KINDS {
        impossible_arguments(kind);
    }
}

fn impossible_arguments(kind: Kind) {
    let mut members = group(kind, 1, 64);
    let error = members[0].all_reduce(Real::F64, 4, 5).unwrap_err();
    assert!(error.to_string().contains("not within 8"), "{error}");
    assert!(members[0].barrier().is_err());
    let mut members = group(kind, 1, 64);
    assert!(members[0].all_gather(&[1.0], &mut []).is_err());
}

#[test]
fn impossible_groups_are_errors() {
    assert!(local::group(0, 64).is_err());
    assert!(local::group(2, usize::MAX / 2).is_err());
}
