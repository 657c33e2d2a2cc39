//! Data: the order of samples, resumes, and bad files.

use super::*;
use proptest::prelude::*;
use std::io::Write;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn split(seq_len: usize, validation: f64) -> Split {
    Split {
        seq_len,
        validation,
        seed: 7,
        vocab: 256,
    }
}

fn is_bijection(len: u64, seed: u64, epoch: u64) -> bool {
    let permutation = Permutation::new(len, seed, epoch);
    let mut seen = vec![false; len as usize];
    (0..len).for_each(|i| seen[permutation.at(i) as usize] = true);
    seen.into_iter().all(|s| s)
}

#[test]
fn every_small_size_and_powers_with_neighbours_are_permuted() {
    for len in (1..=300).chain([1023, 1024, 1025, 4095, 4097, 65535, 65536, 65537]) {
        assert!(is_bijection(len, 1, 0), "{len}");
    }
    let huge = Permutation::new(u64::MAX / 2 + 3, 1, 0);
    assert!(huge.at(u64::MAX / 2 + 2) < u64::MAX / 2 + 3);
}

#[test]
fn the_order_is_frozen_and_depends_on_seed_and_epoch() {
    let order = |seed, epoch| -> Vec<u64> {
        let permutation = Permutation::new(10, seed, epoch);
        (0..10).map(|i| permutation.at(i)).collect()
    };
    // A change here changes every run's data order: bump the key string, and say so in the changelog.
    assert_eq!(order(1, 0), FROZEN);
    assert_ne!(order(1, 0), order(1, 1));
    assert_ne!(order(1, 0), order(2, 0));
}

const FROZEN: [u64; 10] = [8, 2, 9, 0, 3, 6, 1, 4, 7, 5];

#[test]
fn places_are_spread_evenly() {
    // Where the first element of 64 goes over 6400 epochs: each place 100 times, deviation 10.
    let mut counts = [0u32; 64];
    for epoch in 0..6400 {
        counts[Permutation::new(64, 3, epoch).at(0) as usize] += 1;
    }
    assert!(counts.iter().all(|&c| (50..150).contains(&c)), "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn permutations_are_bijections(len in 1u64..20_000, seed: u64, epoch: u64) {
        prop_assert!(is_bijection(len, seed, epoch));
    }

    /// Random batch sizes, replicas and resumes: each epoch holds every training sequence exactly once.
    #[test]
    fn every_sequence_comes_once_an_epoch(
        tokens in 40usize..3000,
        seq_len in 1usize..17,
        seed: u64,
        phases in prop::collection::vec((1usize..5, 1usize..4, 1usize..5, 1usize..40), 1..6),
    ) {
        let file = file(&vec![1u8; tokens]);
        let data = Dataset::open(file.path(), Split { seed, ..split(seq_len, 0.1) }).unwrap();
        let mut order = Vec::new();
        let mut consumed = 0;
        // Each phase is a resume with another layout from nothing but the count of consumed samples.
        for (micro, accumulation, replicas, steps) in phases {
            for _ in 0..steps {
                let global = micro * accumulation * replicas;
                let mut batch = vec![None; global];
                for replica in 0..replicas {
                    for index in 0..accumulation {
                        let first = offset_in_batch(micro, replicas, replica, index);
                        for n in first..first + micro as u64 {
                            prop_assert!(batch[n as usize].is_none());
                            batch[n as usize] = Some(data.sample(consumed + n));
                        }
                    }
                }
                order.extend(batch.into_iter().map(|s| s.unwrap()));
                consumed += global as u64;
            }
        }
        let count = data.train_sequences() as usize;
        for epoch in order.chunks(count) {
            let mut seen = vec![0; count];
            epoch.iter().for_each(|&s| seen[s as usize] += 1);
            let least = usize::from(epoch.len() == count);
            prop_assert!(seen.iter().all(|&n| n <= 1 && n >= least));
        }
    }
}

#[test]
fn sequences_overlap_by_one_token_and_the_tail_is_dropped() {
    // 1 + 6 x 4 tokens and a tail of 3; one of six sequences held out.
    let bytes: Vec<u8> = (0..28).collect();
    let file = file(&bytes);
    let data = Dataset::open(file.path(), split(4, 0.1)).unwrap();
    assert_eq!(
        (
            data.train_sequences(),
            data.held_out_sequences(),
            data.dropped_tokens()
        ),
        (5, 1, 3)
    );
    let (mut inputs, mut targets) = ([0; 4], [0; 4]);
    let mut starts = Vec::new();
    for n in 0..5 {
        data.read_sample(n, &mut inputs, &mut targets).unwrap();
        let s = inputs[0];
        assert_eq!(inputs, [s, s + 1, s + 2, s + 3]);
        assert_eq!(targets, [s + 1, s + 2, s + 3, s + 4]);
        assert_eq!(u64::from(s), 4 * data.sample(n));
        starts.push(s);
    }
    starts.sort_unstable();
    assert_eq!(starts, [0, 4, 8, 12, 16]);
    data.read_held_out(0, &mut inputs, &mut targets).unwrap();
    assert_eq!((inputs[0], targets[3]), (20, 24));
    assert!(data.read_held_out(1, &mut inputs, &mut targets).is_err());
    assert!(data.read_sample(0, &mut inputs[..3], &mut targets).is_err());
}

#[test]
fn long_sequences_read_over_several_chunks() {
    let bytes: Vec<u8> = (0..20_001u32).map(|i| (i * i % 251) as u8).collect();
    let file = file(&bytes);
    let data = Dataset::open(file.path(), split(10_000, 0.0)).unwrap();
    let (mut inputs, mut targets) = (vec![0; 10_000], vec![0; 10_000]);
    for n in 0..2 {
        data.read_sample(n, &mut inputs, &mut targets).unwrap();
        let start = 10_000 * data.sample(n) as usize;
        for i in 0..10_000 {
            assert_eq!(inputs[i], u32::from(bytes[start + i]));
            assert_eq!(targets[i], u32::from(bytes[start + i + 1]));
        }
    }
}

#[test]
fn unusable_files_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no.txt");
    let say = |path: &Path, split| Dataset::open(path, split).unwrap_err().to_string();
    let text = say(&missing, split(4, 0.0));
    assert!(
        text.contains("cannot find") && text.contains("no.txt"),
        "{text}"
    );
    assert!(say(dir.path(), split(4, 0.0)).contains("a directory"));
    assert!(say(Path::new("/dev/zero"), split(4, 0.0)).contains("a device"));
    assert!(say(file(b"").path(), split(4, 0.0)).contains("empty"));
    assert!(say(file(b"abcd").path(), split(4, 0.0)).contains("5 are needed"));
    Dataset::open(file(b"abcde").path(), split(4, 0.0)).unwrap();
    let text = say(file(b"abcde").path(), split(4, 0.5));
    assert!(
        text.contains("9 are needed") && text.contains("held out"),
        "{text}"
    );
    let both = Dataset::open(file(b"abcdefghi").path(), split(4, 0.9)).unwrap();
    assert_eq!((both.train_sequences(), both.held_out_sequences()), (1, 1));
    let small = Split {
        vocab: 128,
        ..split(2, 0.0)
    };
    let text = say(file(b"abc\xc3\xa9").path(), small);
    assert!(
        text.contains("token 195 at byte 3") && text.contains("128"),
        "{text}"
    );
    assert!(say(file(b"abc").path(), split(0, 0.0)).contains("at least 1"));
    for share in [-0.1, 1.0, f64::NAN] {
        assert!(say(file(b"abc").path(), split(1, share)).contains("below 1"));
    }
}

#[test]
fn a_file_that_shrinks_under_the_run_is_an_error() {
    let file = file(&[9; 100]);
    let data = Dataset::open(file.path(), split(9, 0.0)).unwrap();
    file.as_file().set_len(5).unwrap();
    let (mut inputs, mut targets) = ([0; 9], [0; 9]);
    let error = data.read_sample(0, &mut inputs, &mut targets).unwrap_err();
    assert!(
        error.to_string().contains("had 100 bytes and has 5 now"),
        "{error}"
    );
}

#[test]
fn the_fingerprint_tells_what_must_not_change() {
    let one = file(b"To be, or not to be");
    let base = Dataset::open(one.path(), split(4, 0.25))
        .unwrap()
        .fingerprint();
    assert!(
        base.ends_with("bytes=19 format=bytes seq_len=4 seed=7 validation=0.25"),
        "{base}"
    );
    let copy = file(b"To be, or not to be");
    assert_eq!(
        Dataset::open(copy.path(), split(4, 0.25))
            .unwrap()
            .fingerprint(),
        base
    );
    let other = file(b"To be, or not to bE");
    assert_ne!(
        Dataset::open(other.path(), split(4, 0.25))
            .unwrap()
            .fingerprint(),
        base
    );
}
