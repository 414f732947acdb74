use std::path::Path;

use super::{Room, room};

#[test]
fn a_folder_tells_the_room_of_its_file_system() {
    let folder = tempfile::tempdir().unwrap();
    let Room { free_bytes, bytes } = room(folder.path()).unwrap();
    assert!(0 < bytes && free_bytes <= bytes, "{free_bytes} of {bytes} bytes are free");
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    assert!(room(Path::new("/nothing/is/here")).is_err());
}
