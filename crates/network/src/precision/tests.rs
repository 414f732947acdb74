use std::time::{Duration, Instant};

use tch::Device;

use super::{Precision, PrecisionPreference, choose_precision, faster};

/// A clock that may not be read.
fn stopped() -> Instant {
    panic!("nothing has to be measured")
}

#[test]
fn a_wish_is_followed_without_measuring() {
    let wish = |preference| choose_precision(preference, Device::Cpu, &mut stopped).precision;
    assert_eq!(wish(PrecisionPreference::F32), Precision::F32);
    assert_eq!(wish(PrecisionPreference::Bf16), Precision::Bf16);
}

#[test]
fn bf16_must_be_a_fifth_faster() {
    let choice = |f32, bf16| faster(Duration::from_micros(f32), Duration::from_micros(bf16)).precision;
    assert_eq!(choice(1200, 1000), Precision::Bf16);
    assert_eq!(choice(1190, 1000), Precision::F32);
    assert_eq!(choice(1000, 4000), Precision::F32);
}

/// A scripted clock in which every pass of the first measurement takes five times as long as of the second.
#[test]
fn auto_takes_what_it_measures_to_be_faster_and_says_so() {
    #[allow(clippy::disallowed_methods, reason = "an Instant has no other beginning; only differences count")]
    let start = Instant::now();
    let mut readings = 0;
    let mut elapsed = Duration::ZERO;
    let mut clock = || {
        // Readings come in pairs, eight pairs for each precision.
        elapsed += Duration::from_millis(if readings < 16 { 5 } else { 1 });
        readings += 1;
        start + elapsed
    };
    let chosen = choose_precision(PrecisionPreference::Auto, Device::Cpu, &mut clock);
    let expected = "bf16 (64 positions of a 4x64 tower take 5.00 ms in f32, 1.00 ms in bf16)";
    assert_eq!(chosen.to_string(), expected);
}

#[test]
fn preferences_are_written_as_they_are_read() {
    for text in ["auto", "f32", "bf16"] {
        assert_eq!(text.parse::<PrecisionPreference>().unwrap().to_string(), text);
    }
    assert!("fp8".parse::<PrecisionPreference>().is_err());
}
