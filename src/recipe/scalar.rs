//! Counts, numbers and durations as people write them. An `Err` says in words what was expected.

/// Seconds of the longest duration, 100 years.
const MAX_SECONDS: u64 = 100 * 366 * 86_400;

/// A whole number: digits, `_` between digits, and `k`, `M`, `G` for thousands, millions, billions.
pub fn count(text: &str) -> Result<u64, String> {
    let expected = || "expected a whole number".to_string();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    if digits.starts_with('-')
        && digits[1..].bytes().all(|b| b.is_ascii_digit())
        && digits.len() > 1
    {
        return Err("expected a whole number that is not negative".into());
    }
    let groups: Vec<&str> = digits.split('_').collect();
    let whole = groups
        .iter()
        .all(|g| !g.is_empty() && g.bytes().all(|b| b.is_ascii_digit()));
    if !whole {
        return Err(expected());
    }
    let joined = groups.concat();
    if joined.len() > 1 && joined.starts_with('0') {
        return Err("expected a whole number without leading zeros".into());
    }
    joined
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| "expected a whole number below 18446744073709551616".into())
}

/// A finite decimal number, such as `0.1` or `6.0e-5`.
pub fn number(text: &str) -> Result<f64, String> {
    let plain = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    match text.parse::<f64>() {
        Ok(value) if plain && value.is_finite() => Ok(value),
        _ => Err("expected a number".into()),
    }
}

/// An amount of memory in bytes: `64MiB`, `512GiB`.
pub fn memory(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    units
        .iter()
        .find_map(|(unit, shift)| digits(text.strip_suffix(unit)?)?.checked_mul(1 << shift))
        .ok_or_else(|| "expected an amount of memory, such as 512GiB".into())
}

/// A duration in seconds: `90s`, `30m`, `2h`, `1h30m`, `2d`, `HH:MM:SS`, `D-HH:MM:SS`.
pub fn duration(text: &str) -> Result<u64, String> {
    let expected =
        || "expected a duration, such as 90s, 30m, 2h, 1h30m, 2d or HH:MM:SS".to_string();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "expected a duration with its unit, such as {text}s or {text}m"
        ));
    }
    let seconds = if text.contains(':') {
        clock(text)
    } else {
        units(text)
    };
    match seconds {
        Some(seconds) if seconds <= MAX_SECONDS => Ok(seconds),
        Some(_) => Err("expected a duration of at most 100 years".into()),
        None => Err(expected()),
    }
}

fn clock(text: &str) -> Option<u64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (digits(days)?, rest),
        None => (0, text),
    };
    let parts: Vec<&str> = rest.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else {
        return None;
    };
    if minutes.len() != 2 || seconds.len() != 2 {
        return None;
    }
    let (hours, minutes, seconds) = (digits(hours)?, digits(minutes)?, digits(seconds)?);
    if minutes > 59 || seconds > 59 {
        return None;
    }
    Some(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
}

fn units(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit())?;
        let amount = digits(&rest[..at])?;
        let unit = match rest.as_bytes()[at] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            _ => return None,
        };
        // Each unit once, from large to small.
        if unit >= last {
            return None;
        }
        last = unit;
        total += amount * unit;
        rest = &rest[at + 1..];
    }
    (last != u64::MAX).then_some(total)
}

/// Up to nine digits, so that sums of products cannot overflow.
fn digits(text: &str) -> Option<u64> {
    let ok = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if ok { text.parse().ok() } else { None }
}

/// Seconds as `1h30m`, the form [`duration`] reads.
pub fn show_duration(seconds: u64) -> String {
    if seconds == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        let rest = match unit {
            "d" => seconds,
            "h" => seconds % 86_400,
            "m" => seconds % 3600,
            _ => seconds % 60,
        };
        if rest / size > 0 {
            text.push_str(&format!("{}{unit}", rest / size));
        }
    }
    text
}

/// Bytes for people, such as `2.61 TiB`.
pub fn show_memory(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_numbers_and_durations_are_read_as_meant_or_refused() {
        for (text, value) in [
            ("0", 0),
            ("16", 16),
            ("1_000", 1000),
            ("2M", 2_000_000),
            ("64k", 64_000),
        ] {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "abc",
            "1.5",
            "0x10",
            "010",
            "1__0",
            "_1",
            "1_",
            "1e3",
            "-1",
            "2 M",
            "M",
            "99999999999999999999",
            "99999999999999G",
            "１",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
        for (text, value) in [("6.0e-5", 6e-5), ("1", 1.0), (".5", 0.5), ("-2", -2.0)] {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for text in [
            "", "inf", "nan", ".inf", "1e999", "0x1", "1_0", "abc", "infinity", "-", "e",
        ] {
            assert!(number(text).is_err(), "{text}");
        }
        for (text, value) in [
            ("90s", 90),
            ("30m", 1800),
            ("2h", 7200),
            ("1h30m", 5400),
            ("2d", 172_800),
            ("02:00:01", 7201),
            ("1-00:00:00", 86_400),
            ("100:00:00", 360_000),
        ] {
            assert_eq!(duration(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "30",
            "2:00",
            "1h1h",
            "30m1h",
            "1.5h",
            "h",
            "1x",
            "00:60:00",
            "-1h",
            "1h ",
            "999999999d",
            "1:2:3",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(seconds in 0..MAX_SECONDS) {
            prop_assert_eq!(duration(&show_duration(seconds)), Ok(seconds));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,12}|[0-9:dhms_kMG.e-]{0,14}") {
            let _ = (count(&text), number(&text), duration(&text));
        }
    }
}
