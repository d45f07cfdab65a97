// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"
)

// Blocks and options of a pcapng file (draft-ietf-opsawg-pcapng, sections 3.5 and 4). A library's writer would bring
// its tables of all protocols into the program, 3 MB; tests read these files by that library.
const (
	sectionBlock   = 0x0A0D0D0A
	interfaceBlock = 1
	packetBlock    = 6

	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1
	nanoseconds    = 9

	optionComment     = 1
	optionOS          = 3 // of a section
	optionHardware    = 2
	optionApplication = 4
	optionName        = 2 // of an interface
	optionDescription = 3
	optionResolution  = 9
	optionInterfaceOS = 12
	optionFlags       = 2 // of a packet

	directionIn  = 1
	directionOut = 2
)

// option is an option of a block; without a value it is left out.
type option struct {
	code  uint16
	value []byte
}

// blocks writes the blocks of one section, all numbers little-endian.
type blocks struct {
	to         *bufio.Writer
	interfaces int
}

// newBlocks begins a file by its section header.
func newBlocks(to io.Writer, application, comment string) (*blocks, error) {
	w := &blocks{to: bufio.NewWriter(to)}
	head := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	head = binary.LittleEndian.AppendUint16(head, 1)              // major version
	head = binary.LittleEndian.AppendUint16(head, 0)              // minor version
	head = binary.LittleEndian.AppendUint64(head, math.MaxUint64) // the length of the section is not said
	return w, w.write(sectionBlock, head, option{optionComment, []byte(comment)},
		option{optionHardware, []byte(runtime.GOARCH)}, option{optionOS, []byte(runtime.GOOS)},
		option{optionApplication, []byte(application)})
}

// write writes a block: its body, and its options.
func (w *blocks) write(kind uint32, body []byte, options ...option) error {
	body = pad(body)
	some := false
	for _, o := range options {
		if len(o.value) == 0 {
			continue
		}
		some = true
		body = binary.LittleEndian.AppendUint16(body, o.code)
		body = binary.LittleEndian.AppendUint16(body, uint16(len(o.value)))
		body = pad(append(body, o.value...))
	}
	if some {
		body = binary.LittleEndian.AppendUint32(body, 0) // the end of the options
	}
	length := uint32(len(body) + 12)
	block := binary.LittleEndian.AppendUint32(nil, kind)
	block = binary.LittleEndian.AppendUint32(block, length)
	block = binary.LittleEndian.AppendUint32(append(block, body...), length)
	_, err := w.to.Write(block)
	return err
}

// pad returns bytes of a length that 32 divides in bits.
func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }

// addInterface writes an interface block, and returns its number.
func (w *blocks) addInterface(name, description string, snap uint32) (int, error) {
	body := binary.LittleEndian.AppendUint16(nil, linkEthernet)
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint32(body, snap)
	id := w.interfaces
	w.interfaces++
	return id, w.write(interfaceBlock, body, option{optionName, []byte(name)},
		option{optionDescription, []byte(description)},
		option{optionResolution, []byte{nanoseconds}}, option{optionInterfaceOS, []byte("Linux")})
}

// packet writes a packet block. Length is that of the frame, of which this much was captured.
func (w *blocks) packet(id int, at time.Time, frame []byte, length int, direction uint32, comments []string) error {
	if length < 0 || uint64(length) > math.MaxUint32 {
		return fmt.Errorf("a frame of %d bytes", length)
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(id))
	nanos := uint64(at.UnixNano())
	body = binary.LittleEndian.AppendUint32(body, uint32(nanos>>32))
	body = binary.LittleEndian.AppendUint32(body, uint32(nanos))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(frame)))
	body = binary.LittleEndian.AppendUint32(body, uint32(length))
	var options []option
	for _, c := range comments {
		options = append(options, option{optionComment, []byte(c)})
	}
	options = append(options, option{optionFlags, binary.LittleEndian.AppendUint32(nil, direction)})
	return w.write(packetBlock, append(body, frame...), options...)
}
