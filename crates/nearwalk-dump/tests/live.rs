// SPDX-License-Identifier: GPL-2.0-or-later
//! Opening the device and loading the module, on kernels that are made up.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nearwalk_dump::live::{Device, Live, LiveError, System};

/// A kernel with some files, and a module that is loaded or not.
struct Fake {
    files: HashMap<PathBuf, Vec<u8>>,
    loaded: Cell<bool>,
    node: bool,
    open_error: Option<i32>,
    load_error: Option<i32>,
    modprobe: Result<(), String>,
    version: (u16, u16),
    loads: RefCell<Vec<PathBuf>>,
}

impl Default for Fake {
    fn default() -> Self {
        Fake {
            files: HashMap::new(),
            loaded: Cell::new(false),
            node: true,
            open_error: None,
            load_error: None,
            modprobe: Err("modprobe: not found".into()),
            version: (1, 0),
            loads: RefCell::default(),
        }
    }
}

impl Fake {
    fn file(mut self, path: &str, release: &str) -> Self {
        let contents = format!(
            "\x7fELF...\0license=GPL\0name=nearwalk_ptdump\0vermagic={release} SMP mod_unload \0"
        );
        self.files.insert(path.into(), contents.into_bytes());
        self
    }

    fn open(&self, module: Option<&str>) -> Result<Live<FakeDevice>, LiveError> {
        Live::open(self, module.map(Path::new))
    }

    fn error(&self, module: Option<&str>) -> String {
        match self.open(module) {
            Ok(_) => panic!("opened"),
            Err(error) => error.to_string(),
        }
    }
}

struct FakeDevice {
    version: (u16, u16),
    stream: Vec<u8>,
}

impl System for Fake {
    type Device = FakeDevice;

    fn release(&self) -> io::Result<String> {
        Ok("6.12.0-test".into())
    }

    fn open_device(&self) -> io::Result<FakeDevice> {
        if let Some(error) = self.open_error {
            return Err(io::Error::from_raw_os_error(error));
        }
        if !self.loaded.get() || !self.node {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(FakeDevice {
            version: self.version,
            stream: Vec::new(),
        })
    }

    fn is_loaded(&self) -> bool {
        self.loaded.get()
    }

    fn read_module(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.files.get(path).cloned();
        file.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }

    fn load(&self, path: &Path) -> io::Result<()> {
        if let Some(error) = self.load_error {
            self.loaded.set(error == libc::EEXIST);
            return Err(io::Error::from_raw_os_error(error));
        }
        self.loads.borrow_mut().push(path.into());
        self.loaded.set(true);
        Ok(())
    }

    fn modprobe(&self, _name: &str) -> Result<(), String> {
        self.loaded.set(self.modprobe.is_ok());
        self.modprobe.clone()
    }

    fn has_replication(&self) -> bool {
        false
    }

    fn build_roots(&self) -> Vec<PathBuf> {
        vec!["/src/target".into(), "/src".into()]
    }
}

impl Device for FakeDevice {
    fn version(&self) -> io::Result<(u16, u16)> {
        Ok(self.version)
    }

    fn begin(&mut self, pid: i32) -> io::Result<()> {
        match pid {
            1 => {
                self.stream = common::Sample::new(1).bytes();
                Ok(())
            }
            2 => Err(io::Error::from_raw_os_error(libc::ENODATA)),
            3 => Err(io::Error::from_raw_os_error(libc::EPERM)),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

impl Read for FakeDevice {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.stream.len());
        buf[..n].copy_from_slice(&self.stream[..n]);
        self.stream.drain(..n);
        Ok(n)
    }
}

const BUILT: &str = "/src/build/module/6.12.0-test/nearwalk_ptdump.ko";

#[test]
fn a_loaded_module_is_used_as_it_is() {
    let fake = Fake::default().file(BUILT, "6.12.0-test");
    fake.loaded.set(true);
    let mut live = fake.open(Some("/elsewhere.ko")).unwrap();
    let mut bytes = Vec::new();
    live.snapshot(1).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, common::Sample::new(1).bytes());
    assert!(fake.loads.borrow().is_empty());
}

#[test]
fn a_module_of_this_build_is_loaded() {
    let fake = Fake::default().file(BUILT, "6.12.0-test");
    fake.open(None).unwrap();
    assert_eq!(*fake.loads.borrow(), [PathBuf::from(BUILT)]);
}

#[test]
fn a_named_module_comes_before_all_others() {
    let fake = Fake::default()
        .file(BUILT, "6.12.0-test")
        .file("/mine.ko", "6.12.0-test");
    fake.open(Some("/mine.ko")).unwrap();
    assert_eq!(*fake.loads.borrow(), [PathBuf::from("/mine.ko")]);
}

#[test]
fn a_named_module_that_is_missing_is_not_replaced_by_another() {
    let fake = Fake::default().file(BUILT, "6.12.0-test");
    assert_eq!(fake.error(Some("/mine.ko")), "/mine.ko cannot be read");
    assert!(fake.loads.borrow().is_empty());
}

#[test]
fn modprobe_comes_last() {
    let fake = Fake {
        modprobe: Ok(()),
        ..Fake::default()
    };
    fake.open(None).unwrap();
    assert!(fake.loads.borrow().is_empty());
}

#[test]
fn without_a_module_the_error_says_how_to_build_one() {
    assert_eq!(
        Fake::default().error(None),
        "the module nearwalk_ptdump is not loaded, and there is none for kernel 6.12.0-test: \
         looked for\n    \
         /src/target/build/module/6.12.0-test/nearwalk_ptdump.ko\n    \
         /src/build/module/6.12.0-test/nearwalk_ptdump.ko\n    \
         modprobe: not found\n\
         build it in Nearwalk's sources with\n    \
         make -C module KDIR=/lib/modules/6.12.0-test/build\n\
         or name it with --module PATH"
    );
}

#[test]
fn a_module_for_another_kernel_is_not_tried() {
    let fake = Fake::default().file("/mine.ko", "6.1.0-9");
    let error = fake.error(Some("/mine.ko"));
    assert!(
        error.starts_with("/mine.ko was built for kernel 6.1.0-9, this is 6.12.0-test"),
        "{error}"
    );
    assert!(fake.loads.borrow().is_empty());
}

#[test]
fn other_files_are_not_loaded() {
    let mut fake = Fake::default();
    fake.files
        .insert("/etc/passwd".into(), b"root:x:0".to_vec());
    assert_eq!(
        fake.error(Some("/etc/passwd")),
        "/etc/passwd is no kernel module, or not nearwalk_ptdump"
    );
}

#[test]
fn someone_else_may_load_it_first() {
    let fake = Fake {
        load_error: Some(libc::EEXIST),
        ..Fake::default().file(BUILT, "6.12.0-test")
    };
    fake.open(None).unwrap();
}

#[test]
fn errors_of_loading_come_with_advice() {
    let refused = |error| {
        let fake = Fake {
            load_error: Some(error),
            ..Fake::default().file(BUILT, "6.12.0-test")
        };
        fake.error(None)
    };
    assert!(refused(libc::EKEYREJECTED).contains("signed modules only"));
    assert!(refused(libc::EPERM).contains("CAP_SYS_MODULE"));
    assert!(refused(libc::ENOEXEC).contains("another configuration"));
}

#[test]
fn errors_of_opening_are_told_apart() {
    let denied = Fake {
        open_error: Some(libc::EACCES),
        ..Fake::default()
    };
    assert!(denied.error(None).contains("needs root"));

    let hidden = Fake {
        node: false,
        ..Fake::default()
    }
    .file(BUILT, "6.12.0-test");
    assert!(hidden.error(None).contains("is /dev the devtmpfs?"));

    let later = Fake {
        version: (2, 0),
        ..Fake::default()
    };
    later.loaded.set(true);
    assert!(
        later
            .error(None)
            .contains("writes format 2.0, this program reads 1.x")
    );
}

#[test]
fn errors_of_a_process_are_told_apart() {
    let fake = Fake::default();
    fake.loaded.set(true);
    let mut live = fake.open(None).unwrap();
    let mut error = |pid| match live.snapshot(pid) {
        Ok(_) => panic!("snapshot"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        error(99),
        "no process 99: it has exited, or is of a PID namespace that cannot be seen from here"
    );
    assert!(error(2).contains("kernel thread"));
    assert!(error(3).contains("needs root"));
}
