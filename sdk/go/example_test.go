package berth_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	berth "berth/sdk/go"
)

// Execute code on a GPU, with its output on the terminal.
func Example() {
	c, err := berth.New(berth.Config{
		Addrs: []string{"https://10.0.0.1:6470", "https://10.0.0.2:6470"}, Token: os.Getenv("BERTH_API_KEY"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := berth.PythonStart{Code: "import torch; print(torch.cuda.get_device_name())", GPUTypes: []string{"a100", "h100"}}
	e, err := c.Run(context.Background(), start, os.Stdout, os.Stderr)
	var refused *berth.Error
	switch {
	case errors.As(err, &refused):
		fmt.Printf("refused (%s): %v\n", refused.Code, err)
		return
	case err != nil:
		fmt.Println(err)
		return
	}
	fmt.Println(e.Status, e.Billed)
}

// Let the cluster find the GPU type that is best for some code.
func ExampleClient_selection() {
	c, err := berth.New(berth.Config{Addrs: []string{"https://10.0.0.1:6470"}, Token: os.Getenv("BERTH_API_KEY")})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	started, err := c.Selections.StartSelection(ctx, berth.SelectionStart{Code: "train()", Objective: "cheapest"})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := c.Wait(ctx, started.ExecutionID); err != nil {
		fmt.Println(err)
		return
	}
	selection, err := c.Selections.GetSelection(ctx, started.ExecutionID, berth.SelectionQuery{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", selection.Recommendation)
}
