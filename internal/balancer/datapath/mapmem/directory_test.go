// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// TestServicesAreNotSparse lays out services that differ in one part only, as
// real ones do: the table must not have to grow much to tell them apart.
func TestServicesAreNotSparse(t *testing.T) {
	const n = 4096
	four, six := netip.MustParseAddr("198.18.0.0").As4(), netip.MustParseAddr("2001:2::").As16()
	for at := range 3 {
		var keys []Key
		for i := range n {
			address := four
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys = append(keys, KeyOf(netip.AddrFrom4(address), 80, 6))
		}
		expectDense(t, keys)
	}
	for at := range 15 {
		var keys []Key
		for i := range n {
			address := six
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys = append(keys, KeyOf(netip.AddrFrom16(address), 80, 6))
		}
		expectDense(t, keys)
	}
	var ports4, ports6 []Key
	for i := range n {
		ports4 = append(ports4, KeyOf(netip.AddrFrom4(four), uint16(1+i), 6))
		ports6 = append(ports6, KeyOf(netip.AddrFrom16(six), uint16(1+i), 6))
	}
	expectDense(t, ports4)
	expectDense(t, ports6)
}

func expectDense(t *testing.T, keys []Key) {
	t.Helper()
	p, err := Place(keys)
	if err != nil {
		t.Fatal(err)
	}
	// Four times the keys is the least; random hashes need that, seldom double.
	if int(p.Size) > 8*len(keys) {
		t.Errorf("%d keys need %d slots", len(keys), p.Size)
	}
}

// TestHashTableIsBounded gives it more keys than there are probes, all of which fall
// on each other.
func TestHashTableIsBounded(t *testing.T) {
	var keys []Key
	for i := uint64(0); len(keys) <= int(serviceProbes); i++ {
		// In a table of any size the search for it begins at the first slot.
		if key := (Key{i}); hashOf(key)>>12 == 0 {
			keys = append(keys, key)
		}
	}
	if _, err := Place(keys); err == nil {
		t.Error("keys with one hash were laid out beyond the probes")
	}
}

// TestKeysAreThoseOfC compares the words of a key with the struct that the program
// compares.
func TestKeysAreThoseOfC(t *testing.T) {
	four, six := netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("2001:2::100")
	key4 := objects.XDPServiceKey4{Address: OfAddress(four)[0], Port: NetworkOrder(8080), Protocol: 17}
	if got, want := KeyOf(four, 8080, 17)[0], *(*uint64)(unsafe.Pointer(&key4)); got != want {
		t.Errorf("IPv4: %x, want %x", got, want)
	}
	key6 := objects.XDPServiceKey6{Address: OfAddress(six), Port: NetworkOrder(8080), Protocol: 17}
	if got, want := KeyOf(six, 8080, 17), *(*Key)(unsafe.Pointer(&key6)); got != want {
		t.Errorf("IPv6: %x, want %x", got, want)
	}
}

// firstWord returns the first word of the value that a search finds.
func firstWord(d *Directory, key Key) (word uint64, found bool) {
	value := d.Lookup(key)
	if value == nil {
		return 0, false
	}
	return value.Load(0), true
}

// TestDirectoryChanges puts, replaces and removes keys at random, and compares the directory with a map after each
// step.
func TestDirectoryChanges(t *testing.T) {
	for _, six := range []bool{false, true} {
		const size = 64
		rng := rand.New(rand.NewPCG(1, 2))
		d, later := NewDirectory(make(Storage, size*SlotWords), size, six), NewManualGrace()
		want := map[Key]uint64{}
		refused := 0
		for step := range 20000 {
			address := netip.AddrFrom4([4]byte{198, 18, 0, byte(rng.IntN(24))})
			if six {
				address = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(rng.IntN(24))})
			}
			key := KeyOf(address, 80, 6)
			switch rng.IntN(4) {
			case 0:
				d.Remove(key, later)
				delete(want, key)
			case 1:
				later.Wait()
			default:
				slot, ok := d.Reserve(key)
				if !ok {
					// Too many have gone lately.
					refused++
					later.Wait()
					continue
				}
				if rng.IntN(8) == 0 {
					d.Cancel(slot)
					continue
				}
				want[key] = uint64(step + 1)
				d.Publish(key, slot, Storage{uint64(step + 1)}, later)
			}
			for i := range 24 {
				address := address.AsSlice()
				address[len(address)-1] = byte(i)
				a, _ := netip.AddrFromSlice(address)
				key := KeyOf(a, 80, 6)
				word, found := firstWord(d, key)
				if wanted, there := want[key]; found != there || word != wanted {
					t.Fatalf("six %t, step %d: %v has %d (found %t), want %d (%t)", six, step, a, word, found,
						wanted, there)
				}
			}
		}
		if refused > 200 {
			t.Errorf("six %t: no slot %d times", six, refused)
		}
	}
}

// TestDirectorySearchedMeanwhile replaces values under keys that are there all the
// time, while another goroutine searches: each search must find one of the values that the key
// has had, whole.
func TestDirectorySearchedMeanwhile(t *testing.T) {
	const size, keys = 32, 6
	d := NewDirectory(make(Storage, size*SlotWords), size, true)
	var mu sync.Mutex
	later := NewGrace(&mu)
	// A reader holds this for as long as it searches; a grace period takes it.
	var readers sync.RWMutex
	later.running = true
	later.Synchronize = func() {
		readers.Lock()
		defer readers.Unlock()
	}
	all := make([]Key, keys)
	for i := range all {
		all[i] = KeyOf(netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), 80, 6)
		slot, _ := d.Reserve(all[i])
		d.Publish(all[i], slot, Storage{uint64(i), uint64(i), uint64(i)}, later)
	}
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := i % keys
			readers.RLock()
			word, found := firstWord(d, all[key])
			readers.RUnlock()
			if !found || int(word)%keys != key {
				t.Errorf("key %d: found %t, value %d", key, found, word)
				return
			}
		}
	})
	for i := range 20000 {
		key := i % keys
		slot, ok := d.Reserve(all[key])
		if !ok {
			later.Wait()
			continue
		}
		v := uint64(i*keys + key)
		d.Publish(all[key], slot, Storage{v, v, v}, later)
	}
	close(stop)
	group.Wait()
}

// TestKeysAppearWhole goes through every moment in which a key is added, removed or moved: no search for another
// packet's key, which has zeros as padding, matches it half written, and searches for others go on.
func TestKeysAppearWhole(t *testing.T) {
	for _, six := range []bool{false, true} {
		d := NewDirectory(make(Storage, 32*SlotWords), 32, six)
		key := KeyOf(netip.MustParseAddr("198.18.0.1"), 80, 6)
		if six {
			key = KeyOf(netip.MustParseAddr("2001:2::1"), 80, 6)
		}
		element := d.element(0)
		met := func() Key {
			k := Key{}
			copy(k[:d.keyWords()], element)
			return k
		}
		for _, change := range []struct {
			name  string
			steps []Step
			// goesOn: a search does not end here at any moment between.
			goesOn bool
		}{
			{"comes", d.publishSteps(key), false}, {"goes", d.hideSteps(), true}, {"comes again", d.publishSteps(key), true},
			{"goes again", d.hideSteps(), true}, {"makes room", d.clearSteps(), false},
		} {
			first := met()
			for i, s := range change.steps {
				element.Store(s.At, s.Word)
				k, last := met(), i == len(change.steps)-1
				padded := six && k[2]>>24 != 0
				if !last && k != first && k != key && !padded && k != (Key{}) {
					t.Errorf("six %t: while it %s, a packet could meet %x", six, change.name, k)
				}
				if change.goesOn && (six && k[0]|k[1] == 0 || !six && uint32(k[0]) == 0) {
					t.Errorf("six %t: while it %s, searches end", six, change.name)
				}
			}
		}
		if met() != (Key{}) {
			t.Errorf("six %t: in the end there is %x", six, met())
		}
	}
}
