use super::*;

#[test]
fn every_number_of_16_bits_is_read_exactly() {
    for bits in 0..=u16::MAX {
        for (datatype, expected) in [
            (Datatype::Fp16, half::f16::from_bits(bits).to_f32()),
            (Datatype::Bf16, half::bf16::from_bits(bits).to_f32()),
        ] {
            let mut value = [9.0];
            Elements::Raw(datatype, &bits.to_le_bytes()).read(0..1, &mut value);
            let same = value[0].to_bits() == expected.to_bits() || (value[0].is_nan() && expected.is_nan());
            assert!(same, "{} {bits:#06x}: {} is not {expected}", datatype.name(), value[0]);
        }
    }
}

#[test]
fn a_range_is_read_from_every_kind_of_contents() {
    let raw_floats: Vec<u8> = [0.5_f32, 0.25, 1.0, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let raw_halves: Vec<u8> =
        [0.5, 0.25, 1.0, 0.0].map(half::f16::from_f32).into_iter().flat_map(half::f16::to_le_bytes).collect();
    let cases: [(Elements<'_>, [f32; 2]); 6] = [
        (Elements::Raw(Datatype::Fp32, &raw_floats), [0.25, 1.0]),
        (Elements::Raw(Datatype::Fp16, &raw_halves), [0.25, 1.0]),
        (Elements::Raw(Datatype::Uint8, &[7, 0, 200, 1]), [0.0, 200.0]),
        (Elements::Floats(&[0.5, 0.25, 1.0, 0.0]), [0.25, 1.0]),
        (Elements::Unsigned(&[3, 1, 0, 1]), [1.0, 0.0]),
        (Elements::Flags(&[false, true, false, true]), [1.0, 0.0]),
    ];
    for (elements, expected) in cases {
        let mut values = [9.0; 2];
        elements.read(1..3, &mut values);
        assert_eq!(values, expected, "{elements:?}");
    }
}

#[test]
fn a_datatype_is_what_the_protocol_calls_it() {
    for datatype in [Datatype::Fp32, Datatype::Fp16, Datatype::Bf16, Datatype::Uint8, Datatype::Bool] {
        assert_eq!(Datatype::parse(datatype.name()), Some(datatype));
    }
    assert_eq!(Datatype::parse("fp32"), None);
    assert_eq!(Datatype::parse(""), None);
}
