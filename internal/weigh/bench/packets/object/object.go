// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Object is an object in the kernel, set up by a setup.
type Object struct {
	setup      *Setup
	collection *ebpf.Collection
	program    *ebpf.Program
}

// ErrMismatch means that the object lacks something that the setup names, or that it differs from the setup.
var ErrMismatch = errors.New("the object is not as the setup says")

// Load loads the object in a file, with the sizes of its maps that the setup gives, and fills the maps. Maps that the
// object would pin are not pinned, and are freed by Close. Errors: ErrMismatch, or the kernel's, with the verifier's
// log.
func (s *Setup) Load(file string) (*Object, error) {
	spec, err := ebpf.LoadCollectionSpec(file)
	if err != nil {
		return nil, fmt.Errorf("reading the object %s: %w", file, err)
	}
	name, err := s.selectProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := s.fit(spec, name); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading %s of %s: %+v", name, file, err)
	}
	o := &Object{setup: s, collection: collection, program: collection.Programs[name]}
	if err := o.fill(); err != nil {
		o.Close()
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return o, nil
}

// Close frees the object.
func (o *Object) Close() { o.collection.Close() }

// Program returns the program under test.
func (o *Object) Program() *ebpf.Program { return o.program }

// types are the program types by hook.
var types = map[lb.Hook]ebpf.ProgramType{lb.HookXDP: ebpf.XDP, lb.HookTC: ebpf.SchedCLS}

// attachTypes are the attach types of the harness's programs.
var attachTypes = map[lb.Hook]ebpf.AttachType{lb.HookXDP: ebpf.AttachXDP, lb.HookTC: ebpf.AttachNone}

// selectProgram returns the name of the program under test.
func (s *Setup) selectProgram(spec *ebpf.CollectionSpec) (string, error) {
	var fit []string
	for name, program := range spec.Programs {
		if program.Type == types[s.Hook] {
			fit = append(fit, name)
		}
	}
	slices.Sort(fit)
	switch {
	case slices.Contains(fit, s.Program):
		return s.Program, nil
	case s.Program != "":
		return "", fmt.Errorf("%w: it has no program %q for %s; it has %s", ErrMismatch, s.Program, s.Hook, listed(fit))
	case len(fit) != 1:
		return "", fmt.Errorf("%w: of its programs for %s (%s), say which: program", ErrMismatch, s.Hook, listed(fit))
	}
	return fit[0], nil
}

// listed joins names for a message.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// fit adapts the object to the setup before it is loaded. Programs of other types and pinned maps do not matter for a
// figure.
func (s *Setup) fit(spec *ebpf.CollectionSpec, program string) error {
	for name := range spec.Programs {
		if spec.Programs[name].Type != types[s.Hook] {
			delete(spec.Programs, name)
		}
	}
	// The harness calls the program like its own programs: the kernel accepts only programs of one kind in an array.
	under := spec.Programs[program]
	under.AttachType = attachTypes[s.Hook]
	if s.Hook == lb.HookXDP {
		under.Flags |= unix.BPF_F_XDP_HAS_FRAGS
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		variable, data := spec.Variables[name], s.Variables[name].bytes()
		if variable == nil {
			return fmt.Errorf("%w: it has no variable %q; it has %s", ErrMismatch, name,
				listed(slices.Sorted(maps.Keys(spec.Variables))))
		}
		if int(variable.Size()) != len(data) {
			return fmt.Errorf("%w: variable %q has %d bytes, and the setup gives %d", ErrMismatch, name,
				variable.Size(), len(data))
		}
		if err := variable.Set(data); err != nil {
			return fmt.Errorf("setting variable %q: %w", name, err)
		}
	}
	for _, m := range s.Maps {
		have := spec.Maps[m.Name]
		if have == nil {
			return fmt.Errorf("%w: it has no map %q; it has %s", ErrMismatch, m.Name,
				listed(slices.Sorted(maps.Keys(spec.Maps))))
		}
		if m.Size != 0 {
			have.MaxEntries = m.Size
		}
	}
	return nil
}

// fill writes the setup's entries to the maps.
func (o *Object) fill() error {
	for _, m := range o.setup.Maps {
		to := o.collection.Maps[m.Name]
		for i, e := range m.Entries {
			key, value := e.Key.bytes(), e.Value.bytes()
			if len(key) != int(to.KeySize()) || len(value) != int(to.ValueSize()) {
				return fmt.Errorf("%w: entry %d of map %q has a key of %d bytes and a value of %d; the map's have %d and %d",
					ErrMismatch, i, m.Name, len(key), len(value), to.KeySize(), to.ValueSize())
			}
			var put any = value
			if perCPU(to.Type()) {
				cpus, err := ebpf.PossibleCPU()
				if err != nil {
					return err
				}
				put = slices.Repeat([][]byte{value}, cpus)
			}
			if err := to.Put(key, put); err != nil {
				return fmt.Errorf("putting entry %d into map %q: %w", i, m.Name, err)
			}
		}
	}
	for i, c := range o.setup.Counters {
		if _, err := o.count(c); err != nil {
			return fmt.Errorf("counters[%d]: %w", i, err)
		}
	}
	return nil
}

func perCPU(t ebpf.MapType) bool {
	return t == ebpf.PerCPUArray || t == ebpf.PerCPUHash || t == ebpf.LRUCPUHash
}

// Counts reads the setup's counters, in the setup's order.
func (o *Object) Counts() (all []uint64, err error) {
	for _, c := range o.setup.Counters {
		n, err := o.count(c)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// count reads a counter. A counter whose key is not in its map yet is 0.
func (o *Object) count(c Counter) (sum uint64, err error) {
	from := o.collection.Maps[c.Map]
	key := c.Key.bytes()
	switch {
	case from == nil:
		return 0, fmt.Errorf("%w: it has no map %q; it has %s", ErrMismatch, c.Map,
			listed(slices.Sorted(maps.Keys(o.collection.Maps))))
	case len(key) != int(from.KeySize()) || c.At+c.Bytes > int(from.ValueSize()):
		return 0, fmt.Errorf("%w: map %q has keys of %d bytes and values of %d; the counter's key has %d, and it ends at byte %d",
			ErrMismatch, c.Map, from.KeySize(), from.ValueSize(), len(key), c.At+c.Bytes)
	}
	values := make([][]byte, 1)
	if perCPU(from.Type()) {
		err = from.Lookup(key, &values)
	} else {
		err = from.Lookup(key, &values[0])
	}
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading map %q: %w", c.Map, err)
	}
	for _, value := range values {
		if at := value[c.At:]; c.Bytes == 4 {
			sum += uint64(binary.NativeEndian.Uint32(at))
		} else {
			sum += binary.NativeEndian.Uint64(at)
		}
	}
	return sum, nil
}

// ErrOutcome means that packets did not end as the setup says.
var ErrOutcome = errors.New("the figure would not be what the setup says")

// Check returns an error that wraps ErrOutcome unless the counters moved as the setup says for that many packets.
func (o *Object) Check(before, after []uint64, packets uint64) error {
	for i, c := range o.setup.Counters {
		if moved := after[i] - before[i]; moved != packets*c.Each {
			return fmt.Errorf("counters[%d] (map %s) counted %d for %d packets instead of %d: %w",
				i, c.Map, moved, packets, packets*c.Each, ErrOutcome)
		}
	}
	return nil
}
