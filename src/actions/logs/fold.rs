//! Identical lines of several ranks as one: `<time> ranks 0-31: <text>`.

use super::Line;
use crate::report::setup::ranges;
use std::collections::HashMap;

/// Lines that are further apart are not one, in milliseconds.
const WINDOW: i64 = 2000;

/// One line, or identical lines of several ranks, in the place of the first.
#[derive(Debug)]
pub(super) struct Group {
    /// Indices of the lines; each of another rank.
    pub(super) lines: Vec<usize>,
    at: Option<i64>,
}

/// Groups of `lines`, which are in the order of time. The lines of each rank stay in their order.
pub(super) fn fold(lines: &[Line]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut by_text: HashMap<(u32, bool, &str), Vec<usize>> = HashMap::new();
    // The group of the newest line of each rank.
    let mut newest: HashMap<(u32, usize), usize> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(said) = line.said() else {
            groups.push(Group {
                lines: vec![index],
                at: None,
            });
            continue;
        };
        let at = chrono::DateTime::parse_from_rfc3339(said.time).ok();
        let at = at.map(|at| at.timestamp_millis());
        let rank = (line.number, said.rank);
        let same = by_text
            .entry((line.number, said.continued, said.text))
            .or_default();
        let after = newest.get(&rank).map_or(0, |group| group + 1);
        let fits = |group: &usize| {
            *group >= after
                && groups[*group]
                    .at
                    .zip(at)
                    .is_some_and(|(a, b)| b - a <= WINDOW)
        };
        // Groups come in the order of their times, so those that do not fit come first.
        let place = same
            .get(same.partition_point(|group| !fits(group)))
            .copied();
        let group = place.unwrap_or_else(|| {
            groups.push(Group {
                lines: Vec::new(),
                at,
            });
            same.push(groups.len() - 1);
            groups.len() - 1
        });
        groups[group].lines.push(index);
        newest.insert(rank, group);
    }
    groups
}

impl Group {
    /// As people read it.
    pub(super) fn show(&self, lines: &[Line]) -> String {
        let first = &lines[self.lines[0]];
        let Some(said) = first.said().filter(|_| self.lines.len() > 1) else {
            return first.text.clone();
        };
        let mut ranks: Vec<usize> = self
            .lines
            .iter()
            .filter_map(|index| Some(lines[*index].said()?.rank))
            .collect();
        ranks.sort_unstable();
        let mark = if said.continued { "+" } else { "" };
        let (time, text) = (said.time, said.text);
        format!("{time} ranks {}{mark}: {text}", ranges(&ranks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(millis: u32, rank: usize, text: &str) -> Line {
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let text = format!(
            "2026-01-01T00:00:{seconds:02}.{millis:03}Z node{}:{rank} {text}",
            rank / 8
        );
        Line::new(1, "node", 0, text)
    }

    fn shown(lines: &[Line]) -> Vec<String> {
        let groups = fold(lines);
        let text = |group: &Group| group.show(lines)[25..].to_owned();
        groups.iter().map(text).collect()
    }

    #[test]
    fn what_all_ranks_say_is_said_once() {
        let mut lines: Vec<Line> = (0..32)
            .map(|rank| line(rank as u32, rank, "hello"))
            .collect();
        lines.push(line(40, 3, "alone"));
        lines.extend(
            (0..32)
                .filter(|r| *r != 7)
                .map(|rank| line(50, rank, "again")),
        );
        assert_eq!(
            shown(&lines),
            [
                "ranks 0-31: hello",
                "node0:3 alone",
                "ranks 0-6,8-31: again"
            ]
        );
    }

    #[test]
    fn repetitions_and_lines_far_apart_are_kept_apart() {
        let lines = [
            line(0, 0, "x"),
            line(1, 0, "x"),
            line(2, 1, "x"),
            line(3, 1, "x"),
            line(5000, 2, "x"),
        ];
        assert_eq!(shown(&lines), ["ranks 0-1: x", "ranks 0-1: x", "node0:2 x"]);
        let odd = [Line::new(1, "a", 0, "no head".into()), line(1, 0, "x")];
        assert_eq!(fold(&odd).len(), 2);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_rank_keeps_its_order(
            said in prop::collection::vec((0usize..4, 0usize..3, 0u32..900), 0..60),
        ) {
            let mut at = 0;
            let lines: Vec<Line> = said.iter().map(|(rank, text, step)| {
                at += step;
                line(at, *rank, ["a", "b", "c"][*text])
            }).collect();
            let groups = fold(&lines);
            let all: Vec<usize> = groups.iter().flat_map(|group| group.lines.clone()).collect();
            prop_assert_eq!(all.len(), lines.len());
            for rank in 0..4 {
                let of: Vec<usize> = all.iter().copied().filter(|i| said[*i].0 == rank).collect();
                prop_assert!(of.is_sorted(), "{:?}", of);
            }
        }
    }
}
