//! Slurm's node lists: `node[1-3,7],login1` → names and back.

use std::collections::BTreeSet;

/// Names a list may stand for; a machine with more does not exist, a damaged list does.
const MOST: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    #[error("the node list `{0}` has a bracket without its partner")]
    Bracket(String),
    #[error("the node list has `{0}` where a range of numbers belongs")]
    Range(String),
    #[error("the node list stands for more than {MOST} names")]
    TooLong,
}

/// Names in the order of the list; the empty list has none.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for item in items(list)? {
        if item.is_empty() {
            continue;
        }
        for name in product(item)? {
            if names.len() == MOST {
                return Err(HostlistError::TooLong);
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// Cuts at commas outside brackets.
fn items(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut items, mut from, mut open) = (Vec::new(), 0, false);
    let fault = || HostlistError::Bracket(list.chars().take(80).collect());
    for (at, c) in list.char_indices() {
        match c {
            '[' if open => return Err(fault()),
            ']' if !open => return Err(fault()),
            '[' => open = true,
            ']' => open = false,
            ',' if !open => {
                items.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return Err(fault());
    }
    items.push(list[from..].trim());
    Ok(items)
}

/// All names of `r[1-2]n[5,7]`, the last bracket running fastest.
fn product(item: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(inside)?;
        if names.len().saturating_mul(numbers.len()) > MOST {
            return Err(HostlistError::TooLong);
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}")))
            .collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// `08-11,20` with the width of the first number of each range.
fn numbers(inside: &str) -> Result<Vec<String>, HostlistError> {
    let fault = |text: &str| HostlistError::Range(text.chars().take(80).collect());
    let number = |text: &str| -> Result<u64, HostlistError> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        number.ok_or_else(|| fault(inside))
    };
    let mut all = Vec::new();
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (number(first)?, number(last)?);
        if low > high {
            return Err(fault(range));
        }
        if high - low >= (MOST - all.len()) as u64 {
            return Err(HostlistError::TooLong);
        }
        let width = first.len();
        all.extend((low..=high).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

/// The shortest list of `names`, sorted, each once: names that differ in their last number only are put together.
pub fn fold<S: AsRef<str>>(names: &[S]) -> String {
    let split = |name: &str| {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let at = name.len() - digits.min(18);
        let number = name[at..].parse::<u64>().ok();
        (name[..at].to_owned(), name.len() - at, number)
    };
    let all: BTreeSet<(String, usize, Option<u64>)> =
        names.iter().map(|name| split(name.as_ref())).collect();
    // Numbers of one width that follow one another, by prefix and width.
    type Ranges = Vec<(u64, u64)>;
    let mut groups: Vec<(String, usize, Ranges)> = Vec::new();
    for (prefix, width, number) in all {
        let Some(number) = number else {
            groups.push((prefix, width, Vec::new()));
            continue;
        };
        match groups.last_mut() {
            Some((p, w, ranges)) if *p == prefix && *w == width && !ranges.is_empty() => {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == number => *last = number,
                    _ => ranges.push((number, number)),
                }
            }
            _ => groups.push((prefix, width, vec![(number, number)])),
        }
    }
    let words: Vec<String> = groups
        .iter()
        .map(|(prefix, width, ranges)| match ranges[..] {
            [] => prefix.clone(),
            [(only, last)] if only == last => format!("{prefix}{only:0width$}"),
            _ => {
                let ranges: Vec<String> = ranges
                    .iter()
                    .map(|(low, high)| match low == high {
                        true => format!("{low:0width$}"),
                        false => format!("{low:0width$}-{high:0width$}"),
                    })
                    .collect();
                format!("{prefix}[{}]", ranges.join(","))
            }
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_of_real_machines() {
        let text = include_str!("../../tests/fixtures/hostlist_cases.json");
        let cases: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        assert!(cases.len() > 10);
        for case in cases {
            let list = case["hostlist"].as_str().unwrap();
            let expected: Vec<String> = serde_json::from_value(case["expanded"].clone()).unwrap();
            assert_eq!(expand(list).unwrap(), expected, "{list}");
            let mut sorted = expand(&fold(&expected)).unwrap();
            sorted.sort();
            let mut expected = expected;
            expected.sort();
            assert_eq!(sorted, expected, "{list}");
        }
    }

    #[test]
    fn folded_as_slurm_does() {
        assert_eq!(fold(&["node4", "node1", "node2", "node1"]), "node[1-2,4]");
        assert_eq!(fold(&["n08", "n09", "n10", "n7"]), "n7,n[08-10]");
        assert_eq!(fold::<&str>(&[]), "");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in [
            "n[1", "n1]", "n[[1]]", "n[]", "n[a-b]", "n[3-1]", "n[1-]", "n[-1]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
        for list in [
            "n[1-99999999999]",
            "a[1-999]b[1-999]",
            "n[1-18446744073709551615]",
        ] {
            assert_eq!(expand(list), Err(HostlistError::TooLong), "{list}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn what_is_folded_is_expanded_again(
            names in prop::collection::btree_set("[a-c]{1,2}(-[a-z])?[0-9]{0,4}", 0..40),
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let mut again = expand(&fold(&names)).unwrap();
            again.sort();
            prop_assert_eq!(again, names);
        }

        #[test]
        fn any_text_is_expanded_or_refused(text in ".{0,60}") {
            let _ = expand(&text);
        }
    }
}
