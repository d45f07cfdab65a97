// SPDX-License-Identifier: Apache-2.0

package nic

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// No library has the fields of RSS. These are two requests of include/uapi/linux/ethtool.h.

// flowHash is struct ethtool_rxnfc as ETHTOOL_GRXFH and ETHTOOL_SRXFH use it. The rest of the kernel's struct follows
// data. Kernels copy it in and out.
type flowHash struct {
	cmd      uint32
	flowType uint32
	data     uint64
	_        [192]byte
}

// rssState is struct ethtool_rxfh with room for the reply to ETHTOOL_GRSSH.
type rssState struct {
	cmd, context       uint32
	entries, keyLength uint32 // of the table, in words of 32 bits; of the key, in bytes
	function           uint8
	_                  [3]uint8
	_                  uint32
	config             [maxRSSConfig]byte
}

// maxRSSConfig is far more than any card needs, in bytes.
const maxRSSConfig = 64 << 10

// flowTypes are TCP_V4_FLOW and so on.
var flowTypes = map[string]uint32{HashTCP4: 0x01, HashUDP4: 0x02, HashTCP6: 0x05, HashUDP6: 0x06}

// hashFields are RXH_IP_SRC and so on, by the letters of ethtool(8).
var hashFields = []struct {
	letter string
	bit    uint64
}{{"m", 1 << 1}, {"v", 1 << 2}, {"t", 1 << 3}, {"s", 1 << 4}, {"d", 1 << 5}, {"f", 1 << 6}, {"n", 1 << 7},
	{"r", 1 << 31}}

func (k *Kernel) getRSS(card, setting string) (string, error) {
	if flow, ok := flowTypes[setting]; ok {
		request := flowHash{cmd: unix.ETHTOOL_GRXFH, flowType: flow}
		if err := ioctl(card, unsafe.Pointer(&request)); err != nil {
			return "", err
		}
		return letters(request.data), nil
	}
	state := &rssState{cmd: unix.ETHTOOL_GRSSH}
	if err := ioctl(card, unsafe.Pointer(state)); err != nil {
		return "", err
	}
	if setting == RSSEntries {
		return strconv.FormatUint(uint64(state.entries), 10), nil
	}
	if state.keyLength == 0 || state.entries > maxRSSConfig/8 || state.keyLength > maxRSSConfig/8 {
		return "", ErrUnsupported
	}
	state.cmd = unix.ETHTOOL_GRSSH
	if err := ioctl(card, unsafe.Pointer(state)); err != nil {
		return "", err
	}
	key := state.config[4*state.entries:][:state.keyLength]
	return colons(key), nil
}

func (k *Kernel) setRSS(card, setting, value string) error {
	flow, ok := flowTypes[setting]
	if !ok {
		return ErrUnsupported
	}
	bits, err := fieldBits(value)
	if err != nil {
		return err
	}
	return ioctl(card, unsafe.Pointer(&flowHash{cmd: unix.ETHTOOL_SRXFH, flowType: flow, data: bits}))
}

// letters returns fields in the notation of ethtool(8); "-" means none.
func letters(bits uint64) string {
	var text strings.Builder
	for _, field := range hashFields {
		if bits&field.bit != 0 {
			text.WriteString(field.letter)
		}
	}
	if text.Len() == 0 {
		return "-"
	}
	return text.String()
}

func fieldBits(value string) (uint64, error) {
	bits := uint64(0)
	if value == "-" {
		return 0, nil
	}
	for _, letter := range strings.Split(value, "") {
		known := false
		for _, field := range hashFields {
			if field.letter == letter {
				bits, known = bits|field.bit, true
			}
		}
		if !known {
			return 0, fmt.Errorf("%q: %w: letters of %s", value, ErrValue, "m v t s d f n r")
		}
	}
	return bits, nil
}

// colons returns a key as ethtool(8) prints it.
func colons(key []byte) string {
	var parts []string
	for _, b := range key {
		parts = append(parts, hex.EncodeToString([]byte{b}))
	}
	return strings.Join(parts, ":")
}

// ioctl makes an ethtool request in the calling thread's network namespace. The request must be contiguous in memory.
func ioctl(card string, request unsafe.Pointer) error {
	if len(card) >= unix.IFNAMSIZ {
		return ErrNoCard
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct ifreq, whose union holds a pointer here; 40 bytes on 64-bit machines.
	ifreq := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}{data: request}
	copy(ifreq.name[:], card)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq)))
	runtime.KeepAlive(request)
	if errno != 0 {
		return errno
	}
	return nil
}
