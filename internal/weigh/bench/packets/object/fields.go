// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Fields are the bytes of a key, a value or a variable, as a list of elements with one field each: {u32: 7}, {be16:
// 80}, {ip: 198.19.0.1}, {mac: 02:00:00:00:00:01}, {bytes: 00ff}, {zero: 4}. Nothing is aligned: the padding between
// the fields of a struct is written as zero.
type Fields []map[string]string

// maxZero is the maximum number of zero bytes in one field.
const maxZero = 1 << 16

// encoders encode a field's text, by its kind.
var encoders = map[string]func(text string) ([]byte, error){
	"u8":   number(1, binary.NativeEndian),
	"u16":  number(2, binary.NativeEndian),
	"u32":  number(4, binary.NativeEndian),
	"u64":  number(8, binary.NativeEndian),
	"be16": number(2, binary.BigEndian),
	"be32": number(4, binary.BigEndian),
	"be64": number(8, binary.BigEndian),
	"ip": func(text string) ([]byte, error) {
		a, err := netip.ParseAddr(text)
		return a.AsSlice(), err
	},
	"mac": func(text string) ([]byte, error) {
		mac, err := net.ParseMAC(text)
		return mac, err
	},
	"bytes": func(text string) ([]byte, error) { return hex.DecodeString(strings.ReplaceAll(text, " ", "")) },
	"zero": func(text string) ([]byte, error) {
		n, err := strconv.ParseUint(text, 0, 32)
		if err == nil && n > maxZero {
			err = fmt.Errorf("more than %d", maxZero)
		}
		if err != nil {
			return nil, err
		}
		return make([]byte, n), nil
	},
}

// number returns an encoder of unsigned integers with the given number of bytes, in decimal, or in hexadecimal after
// 0x.
func number(bytes int, order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}) func(string) ([]byte, error) {
	return func(text string) ([]byte, error) {
		n, err := strconv.ParseUint(text, 0, 8*bytes)
		if err != nil {
			return nil, err
		}
		switch bytes {
		case 1:
			return []byte{byte(n)}, nil
		case 2:
			return order.AppendUint16(nil, uint16(n)), nil
		case 4:
			return order.AppendUint32(nil, uint32(n)), nil
		default:
			return order.AppendUint64(nil, n), nil
		}
	}
}

// encode returns the fields' bytes. With an error, bad is the index of the wrong field, or -1 if there are no fields.
func (f Fields) encode() (data []byte, bad int, err error) {
	if len(f) == 0 {
		return nil, -1, fmt.Errorf("missing; list its fields, such as [{u32: 0}]")
	}
	for i, field := range f {
		if len(field) != 1 {
			return nil, i, fmt.Errorf("%d kinds in one field; use one, such as {u32: 0}", len(field))
		}
		for kind, text := range field {
			encode := encoders[kind]
			if encode == nil {
				return nil, i, fmt.Errorf("%q is no kind of field; use %s", kind, strings.Join(kinds(), ", "))
			}
			encoded, err := encode(text)
			if err != nil {
				return nil, i, fmt.Errorf("%q is no %s: %v", text, kind, err)
			}
			data = append(data, encoded...)
		}
	}
	return data, -1, nil
}

// kinds returns the kinds of fields.
func kinds() (all []string) {
	for kind := range encoders {
		all = append(all, kind)
	}
	slices.Sort(all)
	return all
}

// bytes returns the bytes of fields that Parse has checked.
func (f Fields) bytes() []byte {
	data, _, err := f.encode()
	if err != nil {
		panic(err) // Parse has rejected such fields
	}
	return data
}
