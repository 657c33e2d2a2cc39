//! Numbers for people: counts, bytes, durations, rates, shares; three significant digits.

/// Three significant digits, without exponent for 0.001 to 999,999.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    // Digits after the point that leave three significant ones, after rounding: 9.996 is 10.0, not 10.00.
    let digits = (0..=5)
        .rev()
        .find(|d| size + 0.5 * 10f64.powi(-d) < 10f64.powi(3 - d))
        .unwrap_or(0);
    format!("{value:.*}", digits as usize)
}

fn scaled(value: f64, base: f64, prefixes: &[&str]) -> (String, usize) {
    let mut scaled = value;
    let mut i = 0;
    // 999.5 would print as 1000 of the smaller unit.
    while scaled.abs() >= base - base / 2000.0 && i + 1 < prefixes.len() {
        scaled /= base;
        i += 1;
    }
    (number(scaled), i)
}

/// `1.80 M`, `12.3 k`, `950`.
pub fn count(value: f64) -> String {
    if value.abs() < 1000.0 && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let prefixes = ["", " k", " M", " G", " T", " P", " E"];
    let (text, i) = scaled(value, 1000.0, &prefixes);
    text + prefixes[i]
}

/// Digits in groups of three: `1,234,567`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Powers of 1024: `12.3 MiB`.
pub fn bytes(value: u64) -> String {
    let prefixes = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let (text, i) = scaled(value as f64, 1024.0, &prefixes);
    text + prefixes[i]
}

/// `31.2 k tokens/s`, `1.25 TFLOP/s`: a number with an SI prefix before `unit`.
pub fn rate(value: f64, unit: &str) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P", "E"];
    let (text, i) = scaled(value, 1000.0, &prefixes);
    match unit.starts_with("FLOP") || unit.starts_with("B/") {
        true => format!("{text} {}{unit}", prefixes[i]),
        false if i == 0 => format!("{text} {unit}"),
        false => format!("{text} {} {unit}", prefixes[i]),
    }
}

/// `812 µs`, `41.2 ms`, `1.23 s`, `4m07s`, `1h02m`, `3d04h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "n/a".into();
    }
    if seconds < 0.0 {
        return format!("-{}", duration(-seconds));
    }
    if seconds == 0.0 {
        return "0 s".into();
    }
    if seconds < 0.999_5e-3 {
        return format!("{} µs", number(seconds * 1e6));
    }
    if seconds < 0.999_5 {
        return format!("{} ms", number(seconds * 1e3));
    }
    if seconds < 59.95 {
        return format!("{} s", number(seconds));
    }
    let whole = seconds.round() as u64;
    let (d, h, m, s) = (
        whole / 86400,
        whole / 3600 % 24,
        whole / 60 % 60,
        whole % 60,
    );
    if d > 0 {
        format!("{d}d{h:02}h")
    } else if h > 0 {
        format!("{h}h{m:02}m")
    } else {
        format!("{m}m{s:02}s")
    }
}

/// A share of 1 in percent: `63.2 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "n/a".into();
    }
    let value = share * 100.0;
    if value != 0.0 && value.abs() < 0.05 {
        return "< 0.1 %".into();
    }
    format!("{value:.1} %")
}

/// Losses: four digits after the point, so that curves can be compared by eye; with an exponent where they are huge.
pub fn loss(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => value.to_string(),
        size if size >= 1e6 => format!("{value:.4e}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits_at_every_border() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1.00"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.96, "100"),
            (123.4, "123"),
            (123_456.0, "123456"),
            (0.012_34, "0.0123"),
            (-2.5, "-2.50"),
            (2.5e-5, "2.50e-5"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn losses_are_short_however_large() {
        assert_eq!(loss(1.5), "1.5000");
        assert_eq!(loss(999_999.0), "999999.0000");
        assert_eq!(loss(-1e308), "-1.0000e308");
        assert_eq!(loss(f64::NAN), "NaN");
    }

    #[test]
    fn counts_bytes_and_rates() {
        assert_eq!(count(950.0), "950");
        assert_eq!(count(12_345.0), "12.3 k");
        assert_eq!(count(999_999.0), "1.00 M");
        assert_eq!(count(1_803_776.0), "1.80 M");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(12_900_000), "12.3 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(rate(31_234.0, "tokens/s"), "31.2 k tokens/s");
        assert_eq!(rate(312.0, "tokens/s"), "312 tokens/s");
        assert_eq!(rate(1.25e12, "FLOP/s"), "1.25 TFLOP/s");
        assert_eq!(percent(0.6321), "63.2 %");
        assert_eq!(percent(0.0001), "< 0.1 %");
        assert_eq!(percent(0.0), "0.0 %");
    }

    #[test]
    fn durations_change_their_unit_without_a_sixty_second_minute() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.000_812, "812 µs"),
            (0.0412, "41.2 ms"),
            (0.9996, "1.00 s"),
            (1.234, "1.23 s"),
            (59.9, "59.9 s"),
            (59.97, "1m00s"),
            (247.0, "4m07s"),
            (3599.7, "1h00m"),
            (3720.0, "1h02m"),
            (273_600.0, "3d04h"),
            (-3.0, "-3.00 s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
