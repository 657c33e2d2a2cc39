//! Verdicts from constructed evidence.

use super::*;

fn sign(ms: u64, rank: usize, sign: Sign) -> Evidence {
    Evidence {
        at: Duration::from_millis(ms),
        rank: Some(rank),
        node: Some("local0".into()),
        step: Some(37),
        sign,
        trouble: None,
    }
}

fn verdict(evidence: &[Evidence], request: Option<Request>) -> Verdict {
    classify(&Account {
        ends: &[None, None],
        evidence,
        request,
        loaded: true,
        saved: None,
        step: Some(38),
        common: Some(38),
    })
}

#[test]
fn the_one_that_was_killed_is_named_though_its_peer_reports_first() {
    let verdict = verdict(
        &[
            sign(0, 0, Sign::Exited(Status::Code(1))),
            sign(20, 1, Sign::Exited(Status::Signal(9))),
            sign(30, 0, Sign::Lost),
        ],
        None,
    );
    assert_eq!(
        verdict.words,
        "rank 1 on local0 was killed by SIGKILL at step 37"
    );
    assert_eq!(
        (verdict.class, verdict.rank, verdict.signal),
        (Class::Failed, Some(1), Some(9))
    );
}

fn troubled(mut evidence: Evidence, words: &str, peer: Option<usize>) -> Evidence {
    evidence.trouble = Some(Trouble {
        words: words.into(),
        peer: peer.map(|rank| Peer {
            rank,
            node: "local0".into(),
        }),
    });
    evidence
}

#[test]
fn the_rank_that_others_blame_is_named() {
    let exit = |ms, rank| sign(ms, rank, Sign::Exited(Status::Code(1)));
    let words = "rank 0 has shown no progress for 30.0 s, noticed in all-reduce (operation 8)";
    let accuser = troubled(exit(5, 1), words, Some(0));
    let told = verdict(std::slice::from_ref(&accuser), None);
    assert_eq!(
        told.words,
        "rank 0 on local0 has shown no progress for 30.0 s, noticed in all-reduce (operation 8), says rank 1 at step 37"
    );
    assert_eq!((told.rank, told.code), (Some(0), None));
    // What the blamed one says itself counts more.
    let own = troubled(
        exit(9, 0),
        "cannot save step 40: No space\nleft on device",
        None,
    );
    let told = verdict(&[accuser.clone(), own], None);
    assert_eq!(
        told.words,
        "rank 0 on local0 exited with code 1 at step 37: cannot save step 40: No space left on device"
    );
    let told = verdict(&[accuser.clone(), sign(9, 0, Sign::Lost)], None);
    assert_eq!(
        told.words,
        "the connection to the shim of rank 0 on local0 was lost at step 37"
    );
    // Each blames the other: the first is believed.
    let back = troubled(exit(6, 0), "rank 1 is gone", Some(1));
    assert_eq!(verdict(&[back, accuser], None).rank, Some(0));
    let long = troubled(exit(0, 1), &"é".repeat(999), None);
    assert!(verdict(&[long], None).words.chars().count() < 300);
}

#[test]
fn what_comes_a_second_later_is_a_consequence() {
    let verdict = verdict(
        &[
            sign(0, 0, Sign::Exited(Status::Code(3))),
            sign(1500, 1, Sign::Exited(Status::Signal(11))),
        ],
        None,
    );
    assert_eq!(
        verdict.words,
        "rank 0 on local0 exited with code 3 at step 37"
    );
}

#[test]
fn a_shim_explains_its_lost_connection() {
    let verdict = verdict(
        &[
            sign(0, 1, Sign::Lost),
            sign(3, 1, Sign::ShimGone(Status::Signal(9))),
            sign(4, 0, Sign::Exited(Status::Code(1))),
        ],
        None,
    );
    assert_eq!(
        verdict.words,
        "the shim of rank 1 on local0 was killed by SIGKILL at step 37"
    );
}

#[test]
fn a_shim_that_leaves_in_order_has_lost_its_connection() {
    let words = |code| verdict(&[sign(0, 1, Sign::ShimGone(Status::Code(code)))], None).words;
    assert_eq!(
        words(0),
        "the connection to rank 1 on local0 was lost at step 37; its program ended unheard, with code 0"
    );
    assert!(words(1).starts_with("the shim of rank 1 on local0 exited with code 1"));
}

#[test]
fn exit_codes_of_the_contract_have_their_classes() {
    let of = |codes: [i32; 2], request| {
        let ends = codes.map(|c| {
            Some(End {
                status: Status::Code(c),
                asked: false,
            })
        });
        classify(&Account {
            ends: &ends,
            evidence: &[],
            request,
            loaded: false,
            saved: Some(7),
            step: None,
            common: None,
        })
        .class
    };
    assert_eq!(of([0, 0], None), Class::Done);
    assert_eq!(of([0, 0], Some(Request::Stop)), Class::Done);
    assert_eq!(of([75, 75], None), Class::Again);
    assert_eq!(of([75, 0], None), Class::Again);
    assert_eq!(of([75, 75], Some(Request::Limit)), Class::Stopped);
    assert_eq!(of([75, 75], Some(Request::Cancel)), Class::Cancelled);
    let code = |code| verdict(&[sign(0, 0, Sign::Exited(Status::Code(code)))], None).class;
    assert_eq!(code(76), Class::BadCheckpoint);
    assert_eq!(code(93), Class::Never);
    assert_eq!(code(1), Class::Failed);
}

#[test]
fn only_a_checkpoint_that_was_seen_is_told_as_saved() {
    let of = |saved, request| {
        let end = End {
            status: Status::Code(75),
            asked: false,
        };
        classify(&Account {
            ends: &[Some(end)],
            evidence: &[],
            request,
            loaded: false,
            saved,
            step: Some(7),
            common: Some(7),
        })
        .words
    };
    assert_eq!(
        of(Some(7), None),
        "saved and asks to be started again at step 7"
    );
    assert_eq!(
        of(None, None),
        "asks to be started again at step 7, without a new checkpoint"
    );
    assert_eq!(
        of(Some(7), Some(Request::Limit)),
        "saved and stopped before the time limit at step 7"
    );
    assert_eq!(
        of(None, Some(Request::Stop)),
        "stopped on request at step 7, without a new checkpoint"
    );
    assert_eq!(
        of(Some(5), Some(Request::Stop)),
        "stopped on request at step 7, its newest checkpoint is of step 5"
    );
}
