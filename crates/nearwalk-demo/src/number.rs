// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers for people.

/// With thousands set apart: `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share from 0 to 1, as per cent. Only nothing is `0 %`, only all `100 %`.
pub fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    if rounded == 0.0 && share > 0.0 {
        return "<1 %".into();
    }
    if rounded == 100.0 && share < 1.0 {
        return ">99 %".into();
    }
    format!("{rounded} %")
}

/// A span of time, in the unit that fits, to three digits or so.
pub fn time(seconds: f64) -> String {
    if seconds >= 9.95 {
        format!("{seconds:.0} s")
    } else if seconds >= 0.9995 {
        format!("{seconds:.1} s")
    } else if seconds >= 0.00995 {
        format!("{:.0} ms", seconds * 1e3)
    } else if seconds >= 0.0009995 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}

/// Bytes in binary units.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if bytes >= 10 << shift {
            return format!("{} {unit}", bytes >> shift);
        }
        if bytes >= 1 << shift {
            let number = bytes as f64 / f64::from(1u32 << shift);
            let text = format!("{number:.1}");
            return format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    format!("{bytes} bytes")
}

/// `1 node`, `4 nodes`.
pub fn plural(number: usize, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn only_nothing_is_zero_and_only_all_is_a_hundred() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1.0 / 400_000.0), "<1 %");
        assert_eq!(percent(0.748), "75 %");
        assert_eq!(percent(0.9999), ">99 %");
        assert_eq!(percent(1.0), "100 %");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (seconds, text) in [
            (12.4, "12 s"),
            (1.234, "1.2 s"),
            (0.4321, "432 ms"),
            (0.0071, "7.1 ms"),
            (0.000_052, "52 µs"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!(size(320 << 20), "320 MiB");
        assert_eq!(size(3 << 30), "3 GiB");
        assert_eq!(size(1536 << 10), "1.5 MiB");
        assert_eq!(size(12), "12 bytes");
    }
}
