// SPDX-License-Identifier: Apache-2.0

package resident

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestKeeper: memory is returned once changes have ended, not after each of them.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, failed := 0, 0
		k := NewReleaser()
		k.release = func() error { released++; return errors.New("refused") }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx, func(error) { failed++ }); close(done) }()
		for range 10 {
			k.Changed()
			k.Changed()
			time.Sleep(debounce / 2)
		}
		synctest.Wait()
		if released != 0 {
			t.Errorf("given back %d times amid changes", released)
		}
		time.Sleep(debounce)
		synctest.Wait()
		if released != 1 || failed != 1 {
			t.Errorf("given back %d times after the changes, and %d times failed; want once", released, failed)
		}
		time.Sleep(time.Hour)
		k.Changed()
		time.Sleep(2 * debounce)
		synctest.Wait()
		if released != 2 {
			t.Errorf("given back %d times after another change, want 2", released)
		}
		cancel()
		<-done
	})
}

// TestUnchanged: pages of a file may be dropped, but none that the process has written.
func TestUnchanged(t *testing.T) {
	const smaps = `00400000-01477000 r-xp 00000000 fe:00 326269                     /usr/bin/jeoul
Size:              16860 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01477000-02554000 r--p 01077000 fe:00 326269                     /usr/bin/jeoul
Anonymous:             0 kB
VmFlags: rd mr mw me
02554000-02f98000 rw-p 02154000 fe:00 326269                     /usr/bin/jeoul
Anonymous:             0 kB
VmFlags: rd wr mr mw me ac
02f98000-034ef000 r--p 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd mr mw me ac
7f0000000000-7f0000001000 r--p 00026000 fe:00 12                 /usr/lib/libc.so.6
Anonymous:             4 kB
VmFlags: rd mr mw me ac
7f0001000000-7f0001001000 r--s 00000000 00:10 1038               anon_inode:bpf-map
Anonymous:             0 kB
VmFlags: rd mr me ms
7f0002000000-7f0002001000 r--p 00000000 00:15 2034               /sys/kernel/btf/vmlinux
Anonymous:             0 kB
VmFlags: rd mr mw me pf de dd
7f0003000000-7f0003001000 r--p 00000000 fe:00 13                 /usr/lib/locked.so
Anonymous:             0 kB
VmFlags: rd mr mw me lo
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]
Anonymous:             0 kB
VmFlags: ex
`
	areas, err := cleanFileMappings(strings.NewReader(smaps))
	if err != nil {
		t.Fatal(err)
	}
	want := []addressRange{{0x400000, 0x1477000}, {0x1477000, 0x2554000}}
	if len(areas) != len(want) || areas[0] != want[0] || areas[1] != want[1] {
		t.Errorf("%x, want %x", areas, want)
	}
}

// TestRelease: pages of a file leave memory, and are read again unchanged. Pages that were written before they became
// read-only, as a dynamic linker does with addresses, stay.
func TestRelease(t *testing.T) {
	const size = 1 << 20
	file := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("page"), size/4)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	clean, written := mapPrivately(t, file, size, unix.PROT_READ),
		mapPrivately(t, file, size, unix.PROT_READ|unix.PROT_WRITE)
	written[0] = 'P'
	if err := unix.Mprotect(written, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(clean, content) {
		t.Fatal("the mapping has not what the file has")
	}
	before := inMemory(t, file)
	if err := Release(); err != nil {
		t.Fatal(err)
	}
	if after := inMemory(t, file); before[0] != size>>10 || after[0] != 0 || after[1] != before[1] {
		t.Errorf("KiB in memory before %v, after %v; want %d of the first mapping before and none after, and the second one as it was", before, after, size>>10)
	}
	if !bytes.Equal(clean, content) {
		t.Error("pages came back with other contents")
	}
	if written[0] != 'P' {
		t.Error("what was written is gone")
	}
}

// TestReleaseBesideBTF: the kernel's BTF, which stays mapped after eBPF programs were loaded, is not touched.
func TestReleaseBesideBTF(t *testing.T) {
	const file = "/sys/kernel/btf/vmlinux"
	f, err := os.Open(file)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Skipf("%s cannot be mapped (before Linux 6.16): %v", file, err)
	}
	defer unix.Munmap(memory)
	if err := Release(); err != nil {
		t.Error(err)
	}
}

func mapPrivately(t *testing.T, file string, size, protection int) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, size, protection, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	return memory
}

// inMemory returns how many KiB of this process's two mappings of a file are in memory: of the one without an anonymous
// page, and of the other.
func inMemory(t *testing.T, file string) (kib [2]int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	in, rss := false, 0
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			in = fields[len(fields)-1] == file
		case in && fields[0] == "Rss:":
			rss = number(t, fields[1])
		case in && fields[0] == "Anonymous:" && fields[1] == "0":
			kib[0] = rss
		case in && fields[0] == "Anonymous:":
			kib[1] = rss
		}
	}
	return kib
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
