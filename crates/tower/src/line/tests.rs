use super::*;

#[test]
fn bfloat16_rounds_to_nearest_ties_to_even() {
    for bits in (0..=u32::MAX).step_by(65_521) {
        let value = f32::from_bits(bits);
        if value.is_finite() {
            assert_eq!(to_bf16(value), half::bf16::from_f32(value).to_bits(), "{value}");
        }
    }
    assert_eq!(from_bf16(to_bf16(1.0 + 1.0 / 256.0)), 1.0);
    assert_eq!(from_bf16(to_bf16(1.0 + 3.0 / 256.0)), 1.0 + 4.0 / 256.0);
}

#[test]
fn what_is_not_finite_stays_so() {
    for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::from_bits(0x7F80_0001)] {
        assert!(!from_bf16(to_bf16(value)).is_finite(), "{value}");
    }
}

#[test]
fn a_channel_is_read_as_it_was_set_and_its_neighbours_stay() {
    for format in [Format::F32, Format::Bf16] {
        let mut line = Line::default();
        for index in 0..format.per_line() {
            line.set(format, index, index as f32 - 7.5);
        }
        for index in 0..format.per_line() {
            assert_eq!(line.get(format, index), index as f32 - 7.5);
        }
    }
}
