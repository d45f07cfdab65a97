// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wirePassCmd makes the peer of a port that is a veth accept the port's frames.
type wirePassCmd struct {
	Interface []wirePort `arg:"" placeholder:"IF[@NETNS]" help:"The other end of a port that is a veth."`
}

// Help names the program that the command attaches.
func (wirePassCmd) Help() string {
	return `Attaches an XDP program that lets everything pass, until SIGINT or SIGTERM: without one, frames that the port redirects are lost.`
}

// Run waits until ctx ends.
func (c *wirePassCmd) Run(ctx context.Context) (err error) {
	ports, done, err := openPorts(c.Interface)
	defer done()
	if err != nil {
		return err
	}
	pass, err := wire.NewPass(ports)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pass.Close()) }()
	fmt.Println("ready; Ctrl-C or SIGTERM takes the program off again")
	<-ctx.Done()
	return nil
}
