"""Code is loaded into the simulated driver and launched as on a real one."""

from __future__ import annotations

from pathlib import Path

from tests.native import driver_areas, fenced
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_code.c")


def test_a_module_has_the_functions_and_variables_of_its_image(area: Area) -> None:
    """It costs memory as long as it is loaded, and what is no image is refused."""
    area("modules")


def test_a_variable_costs_what_it_holds(area: Area) -> None:
    """From the moment its module is loaded; one that is too large for the card is refused."""
    area("variables")


def test_a_library_has_the_kernels_of_its_image(area: Area) -> None:
    """With the sizes and offsets of their parameters; all of that ends with the library."""
    area("libraries")


def test_a_fat_binary_is_looked_into(area: Area) -> None:
    """As a program has it that nvcc compiled."""
    area("fat binaries")


def test_what_is_linked_can_be_loaded(area: Area) -> None:
    """By the driver's own linker."""
    area("linking")


def test_the_kernels_that_compute_do(area: Area) -> None:
    """With arguments one by one or in one buffer, and never outside of what was allocated."""
    area("kernels")


def test_launches_of_the_first_api_work(area: Area) -> None:
    """Shape and parameters are set on the function."""
    area("old launches")


def test_a_launch_that_cannot_be_is_refused(area: Area) -> None:
    """By its shape, its arguments, its function or its stream."""
    area("wrong launches")


def test_occupancy_and_attributes_of_functions_are_told(area: Area) -> None:
    """Programs choose the shapes of their launches by them."""
    area("occupancy")


def test_textures_and_surfaces_keep_their_descriptions(area: Area) -> None:
    """No kernel reads through them."""
    area("textures")


def test_a_cubin_of_nvidias_compiler_is_read(machine: fenced.Machine, tmp_path: Path) -> None:
    """Its kernels with the offsets and sizes of their parameters, and its variables."""
    program = machine.start()
    path = str(driver_areas.cubin(tmp_path / "code.cubin")).encode()
    program(f"context(); module = made('cuModuleLoad', {path!r})")
    program(
        "def parameters(name):\n"
        " function, count = made('cuModuleGetFunction', module, name), c_size_t()\n"
        " call('cuFuncGetParamCount', function, byref(count))\n"
        " places = [(c_size_t(), c_size_t()) for _ in range(count.value)]\n"
        " for i, (offset, size) in enumerate(places):\n"
        "  call('cuFuncGetParamInfo', function, i, byref(offset), byref(size))\n"
        " return [(offset.value, size.value) for offset, size in places]"
    )
    program(
        "def size_of(name):\n"
        " call('cuModuleGetGlobal_v2', None, byref(size := c_size_t()), module, name)\n"
        " return size.value"
    )
    assert program("parameters(b'first')") == [[0, 8], [8, 8], [16, 4]]
    assert program("parameters(b'second')") == [[0, 16], [16, 1]]
    assert program("[size_of(b'table'), size_of(b'value')]") == [64, 8]
    assert program.code("parameters(b'third')") == 500  # not found
