// SPDX-License-Identifier: Apache-2.0

package bpfhost

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestLacks: each missing feature is reported with its remedy, and a feature that cannot be read counts as present.
func TestLacks(t *testing.T) {
	t.Parallel()
	whole := map[string]string{
		"proc/sys/kernel/arch": "aarch64\n", "sys/kernel/btf/vmlinux": "", "proc/sys/net/core/bpf_jit_enable": "1\n",
		"proc/sys/net/core/netdev_max_backlog": "1000\n",
	}
	for name, test := range map[string]struct {
		change map[string]string // "-" removes a file
		page   int
		want   []string
		fatal  bool
	}{
		"whole":  {},
		"16 KiB": {page: 16 << 10},
		"64 KiB": {page: 64 << 10, want: []string{"pages of 64 KiB", "4 or 16 KiB"}},
		"another machine": {change: map[string]string{"proc/sys/kernel/arch": "x86_64\n"},
			want: []string{"built for arm64", "x86_64"}, fatal: true},
		"no BTF": {change: map[string]string{"sys/kernel/btf/vmlinux": "-", "sys/kernel/notes": ""},
			want: []string{"no BTF", "CONFIG_DEBUG_INFO_BTF"}, fatal: true},
		"JIT off": {change: map[string]string{"proc/sys/net/core/bpf_jit_enable": "0\n"},
			want: []string{"is off", "sysctl -w"}},
		"no JIT": {change: map[string]string{"proc/sys/net/core/bpf_jit_enable": "-"},
			want: []string{"no JIT", "CONFIG_BPF_JIT"}},
		"another namespace": {change: map[string]string{"proc/sys/net/core/bpf_jit_enable": "-",
			"proc/sys/net/core/netdev_max_backlog": "-"}},
		"an older kernel": {change: map[string]string{"proc/sys/kernel/arch": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, text := range whole {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			for path, text := range test.change {
				if root[path] = (&fstest.MapFile{Data: []byte(text)}); text == "-" {
					delete(root, path)
				}
			}
			if test.page == 0 {
				test.page = 4 << 10
			}
			lacks := Host{Root: root, Arch: "arm64", PageSize: test.page}.MissingFeatures()
			if test.want == nil {
				if len(lacks) > 0 {
					t.Fatalf("it lacks %v", lacks)
				}
				return
			}
			if len(lacks) != 1 || lacks[0].Fatal != test.fatal {
				t.Fatalf("it lacks %+v", lacks)
			}
			for _, want := range test.want {
				if !strings.Contains(lacks[0].String(), want) {
					t.Errorf("%q does not say %q", lacks[0], want)
				}
			}
		})
	}
	if lacks := (Host{Root: fstest.MapFS{}, Arch: "arm64", PageSize: 4 << 10}).MissingFeatures(); len(lacks) > 0 {
		t.Errorf("where nothing can be read, it lacks %v", lacks)
	}
}

// TestHere: this machine, whose programs the tests load, lacks no required feature.
func TestHere(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/kernel/btf"); err != nil {
		t.Skip("there is no sysfs here, or no BTF")
	}
	for _, lack := range Local().MissingFeatures() {
		if lack.Fatal {
			t.Errorf("it lacks %v", lack)
		}
	}
}

// TestCompilerIsOff: a disabled JIT compiler is reported with the remedy until it is enabled again. The setting is
// machine-wide, so the test only changes it on a machine of `make test-kernels`.
func TestCompilerIsOff(t *testing.T) {
	const path = "/proc/sys/net/core/bpf_jit_enable"
	if os.Getenv("JEOUL_TEST_MACHINE") == "" {
		t.Skip("runs in a machine of `make test-kernels`")
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		t.Skipf("this kernel has it always on: %v", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, before, 0); err != nil {
			t.Error(err)
		}
	})
	isOff := func(lack MissingFeature) bool {
		return strings.Contains(lack.String(), "is off") && strings.Contains(lack.Remedy, "sysctl -w")
	}
	if lacks := Local().MissingFeatures(); !slices.ContainsFunc(lacks, isOff) {
		t.Errorf("the compiler is off, and it lacks %v", lacks)
	}
	if err := os.WriteFile(path, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if lacks := Local().MissingFeatures(); slices.ContainsFunc(lacks, isOff) {
		t.Errorf("the compiler is on, and it lacks %v", lacks)
	}
}
