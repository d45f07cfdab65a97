// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// benchInitCmd is the first process of a virtual machine.
type benchInitCmd struct{}

// Run does the machine's job and switches it off: if this process ended, the kernel would print a long text on the
// console, and hide the cause from a reader.
func (c *benchInitCmd) Run(context.Context) error {
	err := vm.Init()
	if errors.Is(err, vm.ErrNotInit) {
		return err
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "jeoul: %v\n", err)
	}
	return vm.PowerOff()
}
