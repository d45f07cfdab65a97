// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Inode returns the inode number of an open file; that of a namespace identifies it.
func Inode(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return st.Ino, nil
}

// OfProcess returns the inode number of a process's network namespace; an error if the process has ended.
func OfProcess(pid int) (uint64, error) {
	link, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil {
		return 0, err
	}
	number := strings.TrimSuffix(strings.TrimPrefix(link, "net:["), "]")
	return strconv.ParseUint(number, 10, 64)
}
