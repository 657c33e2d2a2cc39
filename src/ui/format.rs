//! Numbers for people.

/// `1.5 GiB`; exact below 1 KiB.
pub fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 9.995 {
        format!("{value:.2} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// `1.53 M`: three digits and k, M, G (or the word given for it), T, P, E.
pub fn si(value: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 && value.fract() == 0.0 {
        0
    } else if value.abs() < 9.995 {
        2
    } else if value.abs() < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {}", units[unit])
        .trim_end()
        .to_string()
}

/// `1,234,567`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1024), bytes(1536 << 20)],
            ["0 B", "1023 B", "1.00 KiB", "1.50 GiB"]
        );
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(
            [si(0.0), si(7.0), si(999.6), si(1_530_000.0), si(2.8e12)],
            ["0", "7", "1.00 k", "1.53 M", "2.80 T"]
        );
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_234_567)],
            ["0", "999", "1,234,567"]
        );
    }
}
