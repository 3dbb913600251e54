// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers as people read them.

use super::Style;

/// A count: as it is, or as in the Mitosis paper, `338`, `11k`, `6M`.
pub(super) fn count(n: u64, style: Style) -> String {
    if style.exact {
        return n.to_string();
    }
    let mut value = n;
    // Rounding may carry into the next unit: 999,600 is 1M.
    let mut scale = 1;
    for unit in ["", "k", "M", "G", "T"] {
        value = if scale == 1 {
            n
        } else {
            (n / scale) + u64::from(n % scale >= scale / 2)
        };
        if value < 1000 {
            return format!("{value}{unit}");
        }
        scale *= 1000;
    }
    format!("{value}T")
}

/// Bytes: as they are, or `96K`, `1.5G`, in powers of 1024.
pub(super) fn bytes(n: u64, style: Style) -> String {
    if style.exact {
        return n.to_string();
    }
    let mut value = n as f64;
    for unit in ["", "K", "M", "G"] {
        if value < 1023.5 {
            return scaled(value, unit);
        }
        value /= 1024.0;
    }
    scaled(value, "T")
}

fn scaled(value: f64, unit: &str) -> String {
    let digits = if value < 9.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    };
    format!("{}{unit}", digits.strip_suffix(".0").unwrap_or(&digits))
}

/// A page size: `4K`, `2M`, `1G`.
pub(super) fn size(n: u64) -> &'static str {
    match n.trailing_zeros() {
        12 => "4K",
        21 => "2M",
        30 => "1G",
        _ => "?",
    }
}

/// A fraction in per cent. 0 % and 100 % are exact: what lies next to them is
/// shown as `<1%` and `>99%`.
pub(super) fn percent(fraction: Option<f64>, style: Style) -> String {
    let Some(fraction) = fraction else {
        return "-".into();
    };
    let percent = fraction * 100.0;
    if fraction == 0.0 || fraction == 1.0 {
        format!("{percent:.0}%")
    } else if style.exact {
        format!("{:.2}%", percent.clamp(0.01, 99.99))
    } else if percent < 1.0 {
        "<1%".into()
    } else if percent > 99.0 {
        ">99%".into()
    } else {
        format!("{percent:.0}%")
    }
}

/// A duration in a unit that suits it.
pub(super) fn duration(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// Nanoseconds since 1970 as a UTC date and time.
pub(super) fn time(realtime_ns: u64) -> String {
    let since = std::time::Duration::from_secs(realtime_ns / 1_000_000_000);
    let text = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUMAN: Style = Style {
        exact: false,
        width: 80,
    };
    const EXACT: Style = Style {
        exact: true,
        width: 80,
    };

    #[test]
    fn counts_have_at_most_four_characters() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1000, "1k"),
            (1499, "1k"),
            (1500, "2k"),
            (11_400, "11k"),
            (999_499, "999k"),
            (999_500, "1M"),
            (6_000_000, "6M"),
            (38_000_000_000, "38G"),
        ];
        for (n, text) in cases {
            assert_eq!(count(n, HUMAN), text, "{n}");
        }
        assert_eq!(count(999_500, EXACT), "999500");
    }

    #[test]
    fn bytes_scale_by_1024() {
        let cases = [
            (0, "0"),
            (512, "512"),
            (4096, "4K"),
            (1536 << 10, "1.5M"),
            (9 << 30, "9G"),
            ((9 << 30) + (512 << 20), "9.5G"),
            (1 << 40, "1T"),
            ((1 << 20) - 1, "1M"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n, HUMAN), text, "{n}");
        }
    }

    #[test]
    fn only_nothing_is_zero_per_cent() {
        let cases = [
            (0.0, "0%"),
            (0.001, "<1%"),
            (0.01, "1%"),
            (0.75, "75%"),
            (0.99, "99%"),
            (0.999, ">99%"),
            (1.0, "100%"),
        ];
        for (fraction, text) in cases {
            assert_eq!(percent(Some(fraction), HUMAN), text, "{fraction}");
        }
        assert_eq!(percent(None, HUMAN), "-");
        assert_eq!(percent(Some(0.0), EXACT), "0%");
        assert_eq!(percent(Some(1e-9), EXACT), "0.01%");
        assert_eq!(percent(Some(0.12345), EXACT), "12.35%");
    }
}
