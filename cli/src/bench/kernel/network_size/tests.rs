use super::*;

#[test]
fn a_size_is_read_back() {
    for text in ["6x64@6x7", "20x256@19x19", "0x32@1x1"] {
        assert_eq!(text.parse::<NetworkSize>().unwrap().to_string(), text);
    }
    let size: NetworkSize = "6x128@9x8".parse().unwrap();
    assert_eq!(size, NetworkSize { blocks: 6, channels: 128, height: 9, width: 8 });
}

#[test]
fn what_is_no_size_is_answered_with_how_one_is_written() {
    for text in ["", "6x64", "6@6x7", "6x64@6", "6x64@6x7x8", "sixx64@6x7", "-1x64@6x7", "99999999999999999999x64@6x7"]
    {
        let error = text.parse::<NetworkSize>().unwrap_err();
        assert!(error.contains(&format!("`{text}`")) && error.contains("6x64@6x7"), "{error}");
    }
}

#[test]
fn square_boards_have_an_action_for_each_cell_and_one_to_pass() {
    let actions = |text: &str| text.parse::<NetworkSize>().unwrap().architecture().actions;
    assert_eq!((actions("1x16@9x9"), actions("1x16@6x7")), (82, 7));
}
